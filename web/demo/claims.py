"""The fictional claims: people, places, sums and dates that do not exist."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    item: str
    age_years: int
    cents: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody wrote on a form. The story is in lines that fit the form's width."""

    insured: str
    policy: str
    address: str
    lost_on: str
    reported_on: str
    story: tuple[str, ...]
    losses: tuple[Loss, ...]
    photo: str
    """Name of the photograph that came with it, in `photos`."""

    @property
    def total(self) -> str:
        return dollars(sum(loss.cents for loss in self.losses))


def dollars(cents: int) -> str:
    return f"${cents / 100:,.2f}"


CLAIMS = (
    Claim(
        insured="Eleanor Whitfield",
        policy="FL-2026-778103",
        address="14 Orchard Road, Harborough, LA 70112",
        lost_on="12 September 2026",
        reported_on="20 September 2026",
        story=(
            "In the night the river rose over its bank and water ran into the garage and",
            "the basement to a depth of 60 cm. The motorcycle stood under water, and the",
            "water heater and the carpets were ruined. Cleaning began the next morning.",
        ),
        losses=(
            Loss("Motorcycle", 3, 842_000),
            Loss("Basement carpets", 4, 121_050),
            Loss("Water heater", 2, 412_000),
        ),
        photo="motorcycle",
    ),
    Claim(
        insured="Marcus Oyelaran",
        policy="FL-2026-310447",
        address="21 Chapel Street, Westbridge, VA 23005",
        lost_on="3 October 2026",
        reported_on="5 October 2026",
        story=(
            "Heavy rain overflowed the canal and the ground floor of the house stood under",
            "30 cm of water for two days. The crockery in the lower cupboards broke, and the",
            "sofa and the wooden floor cannot be repaired. The cat is safe.",
        ),
        losses=(
            Loss("Crockery", 6, 38_500),
            Loss("Sofa", 5, 129_900),
            Loss("Wooden floor", 11, 734_025),
        ),
        photo="crockery",
    ),
)
