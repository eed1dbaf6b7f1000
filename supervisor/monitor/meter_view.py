"""What a worker has counted, as metrics tell it."""

from jobs.outcome import Verdict
from supervisor.monitor import catalog
from supervisor.monitor.exposition import Page
from supervisor.monitor.meter import Meter


def tell_meter(page: Page, meter: Meter) -> None:
    """All of it."""
    kinds = sorted(meter.kinds.items())
    for _, series in kinds:
        series.fold()
    verdicts = [
        ((kind, verdict), count)
        for kind, series in kinds
        for verdict, count in ((Verdict.SUCCEEDED, series.succeeded), *series.verdicts.items())
    ]
    page.add(catalog.ATTEMPTS, verdicts)
    page.add(catalog.DEAD, [((kind,), series.dead) for kind, series in kinds])
    page.add_histograms(catalog.RUN, [((kind,), series.runs) for kind, series in kinds])
    page.add_histograms(catalog.WAIT, [((kind,), series.waits) for kind, series in kinds])
    page.add_histograms(catalog.CLAIM, [((pool,), claims) for pool, claims in meter.claims.items()])
    page.add_histograms(catalog.OUTCOME, [((), meter.writes)])
    page.add_histograms(catalog.LOOP_LAG, [((), meter.lag)])
    page.add(catalog.JOBS_REMOVED, [((status,), count) for status, count in meter.jobs_removed.items()])
    page.add(catalog.RECORDS_REMOVED, [((table,), count) for table, count in meter.records_removed.items()])
