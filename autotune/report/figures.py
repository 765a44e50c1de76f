"""How figures are written for people: three digits or more, never an exponent, whatever the unit."""


def figure(value: float) -> str:
    """``12,345``, ``863``, ``24.6``, ``0.0312``."""
    size = abs(value)
    if size >= 100 or size == 0:
        return f"{value:,.0f}"
    decimals = 1 if size >= 10 else 2
    while size < 1 and decimals < 9:
        size, decimals = size * 10, decimals + 1
    return f"{value:.{decimals}f}"
