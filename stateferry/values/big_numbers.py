"""Java's text of numbers of any size, in time that doesn't grow with the square of their length."""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal

# Python refuses to print much longer integers: it takes time in proportion to the square of their length.
_SHORT_BITS = 4096
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def integer_text(number: int) -> str:
    """`BigInteger.toString()`."""
    if number.bit_length() <= _SHORT_BITS:
        return str(number)
    text = str(_decimal(abs(number), {}))
    return f"-{text}" if number < 0 else text


def decimal_text(unscaled: int, scale: int) -> str:
    """`BigDecimal.toString()`: plain if the point is near, else scientific; keeps trailing zeros."""
    sign, digits = ("-" if unscaled < 0 else ""), integer_text(abs(unscaled))
    if scale == 0:
        return sign + digits
    exponent = len(digits) - 1 - scale
    if scale > 0 and exponent >= -6:
        padded = digits.rjust(scale + 1, "0")
        return f"{sign}{padded[:-scale]}.{padded[-scale:]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}E{exponent:+d}"


def _decimal(number: int, powers: dict[int, Decimal]) -> Decimal:
    """Exact, by halves: decimals multiply in nearly linear time, integers don't."""
    bits = number.bit_length()
    if bits <= _SHORT_BITS:
        return Decimal(number)
    half = _SHORT_BITS
    while half * 2 < bits:
        half *= 2
    high, low = number >> half, number & (1 << half) - 1
    return _EXACT.fma(_decimal(high, powers), _power_of_two(half, powers), _decimal(low, powers))


def _power_of_two(exponent: int, powers: dict[int, Decimal]) -> Decimal:
    """Of exponents that are `_SHORT_BITS` doubled some times: each is the square of the one before."""
    if exponent not in powers:
        short = exponent == _SHORT_BITS
        root = Decimal(2) if short else _power_of_two(exponent // 2, powers)
        powers[exponent] = _EXACT.power(root, exponent) if short else _EXACT.multiply(root, root)
    return powers[exponent]
