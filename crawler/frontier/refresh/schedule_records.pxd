from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.flights cimport Flights
from crawler.frontier.refresh.tables cimport Tables

cdef class Records:
    cdef Tables tables
    cdef Learning learning
    cdef Flights flights
