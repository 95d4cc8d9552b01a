"""Java's text of numbers of any size, in nearly linear time."""

from __future__ import annotations

from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal

# Python refuses to print longer integers, because that takes quadratic time.
_SHORT_BITS = 4096
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def integer_text(number: int) -> str:
    """Returns the text of `BigInteger.toString()`."""
    if number.bit_length() <= _SHORT_BITS:
        return str(number)
    text = str(_decimal(abs(number), {}))
    return f"-{text}" if number < 0 else text


def decimal_text(unscaled: int, scale: int) -> str:
    """Returns the text of `BigDecimal.toString()`: plain if the point is near, else scientific; with trailing zeros."""
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
    """Converts the number exactly, by halves, because decimals multiply in nearly linear time and integers don't."""
    bits = number.bit_length()
    if bits <= _SHORT_BITS:
        return Decimal(number)
    half = _SHORT_BITS
    while half * 2 < bits:
        half *= 2
    high, low = number >> half, number & (1 << half) - 1
    return _EXACT.fma(_decimal(high, powers), _power_of_two(half, powers), _decimal(low, powers))


def _power_of_two(exponent: int, powers: dict[int, Decimal]) -> Decimal:
    """Returns a power of two whose exponent is `_SHORT_BITS` doubled some times; each is the square of the last."""
    if exponent not in powers:
        short = exponent == _SHORT_BITS
        root = Decimal(2) if short else _power_of_two(exponent // 2, powers)
        powers[exponent] = _EXACT.power(root, exponent) if short else _EXACT.multiply(root, root)
    return powers[exponent]
