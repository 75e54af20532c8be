# The unscaled values of decimals: integers of 128 bits, and the powers of ten that bound them.

cdef extern from *:
    """
    typedef unsigned __int128 pykafka_uint128;
    """
    ctypedef unsigned long long uint128 "pykafka_uint128"

cdef uint128[39] INTEGER_POWERS


def _fill_integer_powers():
    cdef uint128 power = 1
    cdef int i
    for i in range(39):
        INTEGER_POWERS[i] = power
        power = power * 10


_fill_integer_powers()
