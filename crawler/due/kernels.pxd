# What C compilers have and Cython has no name for: used where `kernels.py` is compiled.

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
