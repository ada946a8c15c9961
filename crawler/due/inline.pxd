# What the kernels of the DUE share where they are compiled, and must be inline.

cimport cython

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define crawler_prefetch(address) __builtin_prefetch(address)
    #define crawler_lowest_one(word) __builtin_ctzll(word)
    #else
    #define crawler_prefetch(address) ((void) (address))
    static int crawler_lowest_one(unsigned long long word) {
        int place = 0;
        while (!(word >> place & 1)) place++;
        return place;
    }
    #endif
    """
    void prefetch "crawler_prefetch"(const void *address) noexcept nogil
    int lowest_one "crawler_lowest_one"(unsigned long long word) noexcept nogil


@cython.boundscheck(False)
@cython.wraparound(False)
cdef inline Py_ssize_t last_not_above(
    const unsigned long long[::1] keys, Py_ssize_t low, Py_ssize_t high, unsigned long long query
) noexcept nogil:
    # The index of the last key <= query in keys[low:high]. keys[low] <= query.
    cdef Py_ssize_t half, length = high - low
    while length > 1:
        half = length >> 1
        low += half if keys[low + half] <= query else 0  # without a branch: it could not be predicted
        length -= half
    return low


@cython.boundscheck(False)
@cython.wraparound(False)
cdef inline Py_ssize_t gallop(
    const unsigned long long[::1] keys, Py_ssize_t start, unsigned long long query
) noexcept nogil:
    # The index of the last key <= query, at or after `start`, by steps that double. keys[start] <= query.
    cdef Py_ssize_t step = 1, low = start
    while low + step < keys.shape[0] and keys[low + step] <= query:
        low += step
        step += step
    return last_not_above(keys, low, min(low + step, keys.shape[0]), query)


cdef inline unsigned long long ones_of(unsigned long long word) noexcept nogil:
    # How many bits of `word` are 1 (Knuth, 7.1.3).
    word -= word >> 1 & 0x5555555555555555ULL
    word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL)
    word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0FULL
    return (word * 0x0101010101010101ULL) >> 56


cdef inline unsigned long long behind_one(unsigned long long word, unsigned long long number) noexcept nogil:
    # The place right behind 1 bit `number` (1 for the first) of `word`, which has at least `number` (Vigna 2008).
    cdef unsigned long long each = 0x0101010101010101ULL, highest = 0x8080808080808080ULL
    cdef unsigned long long sums = word - (word >> 1 & 0x5555555555555555ULL)
    cdef unsigned long long byte
    sums = (sums & 0x3333333333333333ULL) + (sums >> 2 & 0x3333333333333333ULL)
    sums = ((sums + (sums >> 4)) & 0x0F0F0F0F0F0F0F0FULL) * each  # byte i: how many 1 bits bytes 0 to i have
    byte = 8 * ((((~((sums | highest) - number * each) & highest) >> 7) * each) >> 56)
    number -= (sums << 8 >> byte) & 255
    word >>= byte
    while number > 1:
        word &= word - 1
        number -= 1
    return byte + ones_of(word ^ (word - 1))
