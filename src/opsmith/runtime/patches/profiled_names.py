"""The times and memory of the device in what ``torch.profiler`` returns, by the device's own name.

Programs sort a profile's table by ``cuda_time_total`` or ``self_xpu_memory_usage``, say: the names that
PyTorch has for its own devices.  Its events call them ``device_time_total`` and so on for every device.
"""

from __future__ import annotations

from operator import attrgetter

from torch.autograd.profiler_util import EventList, FormattedTimesMixin

_OF_PYTORCH = ("cuda", "xpu", "privateuse1")
_VALUES = (
    "{}_time",
    "{}_time_total",
    "self_{}_time_total",
    "{}_memory_usage",
    "self_{}_memory_usage",
)


def name_times(device: str) -> None:
    """Gives events the attributes ``<device>_time_total`` and its like; ``export_stacks`` takes them, too."""
    names = {device}
    # The column to sort by is changed first, so that `cuda_driver` is looked up as `device_driver`.
    for own in _OF_PYTORCH:
        names |= {each.replace(own, "device") for each in names}
    for value in _VALUES:
        for name in names:
            setattr(
                FormattedTimesMixin,
                value.format(name),
                property(attrgetter(value.format("device"))),
            )
    of_others = EventList.supported_export_stacks_metrics

    def supported_export_stacks_metrics(self: EventList) -> list[str]:
        metrics: list[str] = of_others(self)  # type: ignore[no-untyped-call]
        return [*metrics, f"self_{device}_time_total"]

    EventList.supported_export_stacks_metrics = supported_export_stacks_metrics  # type: ignore[method-assign]
