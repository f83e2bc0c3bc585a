"""Metrics for Prometheus, from a registry of this server's own.

What is said of topics and groups has the names and labels of kafka_exporter, so that dashboards made for it work. No
label holds an id that a stranger chooses: routes are counted by their pattern, not by their path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from headwater.log.groups import Group, Lag
from headwater.serve.http.permissions import needs
from headwater.serve.http.served import Served

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
PARTITION = ("topic", "partition")
GROUP = ("consumergroup", "topic")


class Traffic:
    """What this server itself counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.requests = Counter(
            "headwater_http_requests_total",
            "Requests that were answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "headwater_http_request_duration_seconds",
            "Until the answer began.",
            ["method", "route"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.failures = Counter(
            "headwater_http_failures_total", "Requests that ended in an unexpected error.", registry=self.registry
        )

        self.webhooks = Counter(
            "headwater_webhooks_total",
            "Webhooks that came in: appended, repeated or refused.",
            ["hook", "outcome"],
            registry=self.registry,
        )
        self._known: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request that was answered. To find counters by their labels costs more than to count: once is enough."""
        known = self._known.get((method, route, status))
        if known is None:
            known = self.requests.labels(method, route, str(status)), self.seconds.labels(method, route)
            self._known[method, route, status] = known
        counter, histogram = known
        counter.inc()
        histogram.observe(seconds)

    def watch(self, served: Served) -> None:
        followers = Gauge("headwater_followers", "Feeds that are open.", registry=self.registry)
        followers.set_function(lambda: served.connections.open)
        self.registry.register(_Catalog(served))


def metric_routes(traffic: Traffic) -> APIRouter:
    router = APIRouter(tags=["health"])

    @router.get(
        "/metrics",
        dependencies=[needs("read", "server", "metrics")],
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        response_class=Response,
    )
    def metrics() -> Response:
        return Response(generate_latest(traffic.registry), media_type=CONTENT_TYPE_LATEST)

    return router


class _Catalog:
    """What the log knows, looked up when it is asked for."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        if self._served.maybe_log is not None:
            yield from self._topics()
            yield from self._groups()
            yield from self._queues()
        yield from self._views()

    def _topics(self) -> Iterator[Metric]:
        partitions = GaugeMetricFamily("kafka_topic_partitions", "Number of partitions.", labels=["topic"])
        current = GaugeMetricFamily("kafka_topic_partition_current_offset", "End of a partition.", labels=PARTITION)
        oldest = GaugeMetricFamily("kafka_topic_partition_oldest_offset", "Start of a partition.", labels=PARTITION)
        dropped = GaugeMetricFamily("headwater_topic_dropped_records", "Dropped by the bound.", labels=PARTITION)
        for name in self._served.names():
            extents = self._served.log.extents(name)
            partitions.add_metric([name], len(extents))
            for partition, extent in extents.items():
                current.add_metric([name, str(partition)], extent.end)
                oldest.add_metric([name, str(partition)], extent.start)
                dropped.add_metric([name, str(partition)], extent.dropped)
        yield from (partitions, current, oldest, dropped)

    def _groups(self) -> Iterator[Metric]:
        each = (*GROUP, "partition")
        offset = GaugeMetricFamily("kafka_consumergroup_current_offset", "Committed offset.", labels=each)
        lag = GaugeMetricFamily("kafka_consumergroup_lag", "Records not committed yet.", labels=each)
        offsets = GaugeMetricFamily("kafka_consumergroup_current_offset_sum", "Committed, in all.", labels=GROUP)
        lags = GaugeMetricFamily("kafka_consumergroup_lag_sum", "Not committed yet, in all.", labels=GROUP)
        members = GaugeMetricFamily("kafka_consumergroup_members", "Living members.", labels=["consumergroup"])
        found: list[tuple[Group, list[Lag]]] = []
        groups = self._served.groups
        for group in groups.groups():
            found.append((group, groups.lag(group.name, group.topic)))
        living: dict[str, int] = {}
        for group, rows in found:
            living[group.name] = living.get(group.name, 0) + group.members
            for row in rows:
                offset.add_metric([group.name, group.topic, str(row.partition)], row.committed)
                lag.add_metric([group.name, group.topic, str(row.partition)], row.lag)
            offsets.add_metric([group.name, group.topic], sum(row.committed for row in rows))
            lags.add_metric([group.name, group.topic], sum(row.lag for row in rows))
        for name, count in living.items():
            members.add_metric([name], count)
        yield from (offset, lag, offsets, lags, members)

    def _queues(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily("headwater_queue_waiting_records", "Never handed out yet.", labels=["queue"])
        taken = GaugeMetricFamily("headwater_queue_taken_records", "Under a lease.", labels=["queue"])
        queues = self._served.queues
        for spec in queues.queues():
            rows = queues.lag(spec.name)
            waiting.add_metric([spec.name], sum(row.waiting for row in rows))
            taken.add_metric([spec.name], sum(row.taken for row in rows))
        yield from (waiting, taken)

    def _views(self) -> Iterator[Metric]:
        behind = GaugeMetricFamily("headwater_view_lag_records", "Input records not reflected yet.", labels=["view"])
        for name, view in self._served.views.items():
            if self._served.maybe_log is None:
                continue
            known = {spec.name for spec in self._served.log.topics()}
            inputs = [topic for topic in view.spec.inputs if topic in known]
            ends = self._served.log.snapshot(inputs).position
            behind.add_metric([name], max(0, ends.total - view.position.only(inputs).total))
        yield behind
