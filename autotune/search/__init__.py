"""What to try next: domain, samplers, the study that is asked and told, the final race, the budget.

domain = Domain(space, defaults)
searcher = StudySearcher(open_study(name, url, "maximize"), domain, RandomSampler(domain), seed=0)
while budget.allows_trial() and (suggestion := searcher.ask()) is not None:
    searcher.tell(suggestion, measure(suggestion))
race = Race(baseline, finalists, noise=noise_floor(baseline_blocks))
while budget.allows_visit() and (visit := race.next()) is not None:
    race.record(visit, measure_fresh(visit))
race.result()
"""
