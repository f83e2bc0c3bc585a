"""What applications and devices send becomes records: from bytes, a content type and headers, whoever the server is."""

from headwater.capture.intake.bodies import BODY_BYTES, gathered
from headwater.capture.intake.taking import Intake, Webhooks, has_events

__all__ = ["BODY_BYTES", "Intake", "Webhooks", "gathered", "has_events"]
