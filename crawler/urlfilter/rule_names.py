"""The names of the URL filter's rules (keys of the report, which never change), with the reasons that users see."""

from crawler.urlfilter import traps
from crawler.urls import canonical

REQUISITE = "requisite"
SCOPE = "scope"
IN_SCOPE = "in_scope"
EXTENSION = "extension"
KIND = "kind"
EXCLUDE = "exclude"
INCLUDE = "include"
PORT = "port"
HOOK = "hook"
WITHDRAWN = "withdrawn"

# Maps the rules, in the order in which they are tried, to the reasons that are shown to users.
RULES = {
    canonical.UNPARSABLE: "it is not a URL: the WHATWG parser rejects it, or its host has no name",
    canonical.SCHEME: "its scheme is neither http nor https",
    canonical.TOO_LONG: "it is longer than urls.length_max",
    WITHDRAWN: "it was withdrawn by the operator (`crawler withdraw`)",
    REQUISITE: "it is a page requisite, and crawl.requisites is off",
    SCOPE: "it is outside the scope of the seeds and their redirect targets",
    IN_SCOPE: "it is in scope, so it is followed and not only checked as an external link",
    EXTENSION: "its file name ends with one of filter.exclude_extensions",
    KIND: "it is of a kind that filter.reject lists, or filter.accept does not",
    EXCLUDE: "it matches a pattern of filter.exclude",
    INCLUDE: "it matches no pattern of filter.include",
    PORT: "its port is that of another protocol (WHATWG Fetch), and network.allow_ports does not name it",
    traps.PATH_SEGMENTS: "its path has more segments than traps.path_segments_max",
    traps.REPEATED_SEGMENTS: "it repeats a part of its path more often than traps.repeated_segments_max",
    HOOK: "it is rejected by the URL filter that the user supplied",
}
