"""What to try next: domain, samplers, the study that is asked and told, the final race, the budget.

domain = Domain(space, defaults)
searcher = StudySearcher(open_study(name, url, "maximize"), domain, RandomSampler(domain), seed=0)
while budget.allows_trial() and (suggestion := searcher.ask()) is not None:
    searcher.tell(suggestion, measure(suggestion))
race = Race(baseline, finalists, noise=noise_floor(baseline_blocks))
while (visit := race.next()) is not None and budget.allows_visits(race.left_in_round(visit.round)):
    race.record(visit, measure_fresh(visit))
race.result()
"""
