# What other compiled modules may call without going through Python.
cpdef double residual(Py_ssize_t i, double x) noexcept
cpdef double gain(Py_ssize_t i, double x, double alpha, double gamma, double precision) noexcept
cpdef double late_residual(double i, double y) noexcept
cpdef double late_gain(double i, double x, double alpha, double gamma) noexcept
cpdef double settled(double n, double staleness, double ratio, double b) noexcept
cpdef double converged_terms(double signals, double c) noexcept
cpdef double below_half(double b) noexcept
cpdef double waves(double s, double c) noexcept
