"""Lower bounds: what no plan can beat, each bound valid for the problem in exact microseconds."""
