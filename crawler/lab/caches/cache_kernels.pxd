cpdef unsigned long long mixed(unsigned long long number) noexcept nogil
