"""Lower bounds on the time of a step that no stage assignment can beat, cheapest first.

`compute` knows layers alone; `capacity` knows memory as well, with what `quick` says of the rest of a step.
"""
