# What other compiled modules may call without going through Python.
cpdef double residual(Py_ssize_t i, double x) noexcept
cpdef double greedy_of(double mu, double delta, double elapsed) noexcept
cpdef Py_ssize_t plain_kind(Py_ssize_t kind, double delta, double alpha, double gamma, double b) noexcept
cpdef double value_of(
    Py_ssize_t kind, Py_ssize_t terms, double mu, double delta, double alpha, double gamma, double nu, double b,
    double elapsed, Py_ssize_t n) noexcept
cpdef double interval_of(
    Py_ssize_t terms, double alpha, double gamma, double nu, double b, double threshold) noexcept
cpdef double fresh_time_of(
    double delta, double alpha, double gamma, double nu, double b, double threshold) noexcept
cpdef double ceiling_of(
    Py_ssize_t kind, Py_ssize_t terms, double mu, double delta, double alpha, double gamma, double nu,
    double b) noexcept
cpdef double threshold_of(
    Py_ssize_t kind, Py_ssize_t terms, double mu, double delta, double alpha, double gamma, double nu, double b,
    double level, double guess, double tolerance) noexcept
