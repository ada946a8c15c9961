"""The parts of a process that the page server reads."""

from crawler.process.answering.explainer import Explainer
from crawler.process.opening.stages import Stages
from crawler.serve.stored_crawl import ServedProcess


def served_process(stages: Stages) -> ServedProcess:
    """Return the parts of `stages` that answer questions about stored pages."""
    return ServedProcess(
        owner=stages.topology.partition.owner if stages.topology.peers else None,
        fingerprint=stages.fingerprinter.fingerprint,
        pages=stages.pages,
        absence=Explainer(stages).absence,
        disallowing_line=stages.frontier.views.disallowing_line,
        freshness=lambda: stages.views.freshness,
    )
