"""Lower bounds on the time of a step that no stage assignment can beat, cheapest first.

`compute` knows layers alone, `quick` everything but memory, `capacity` memory as well.
"""
