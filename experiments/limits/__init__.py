"""Are limits kept? Random scenarios of every feature and scale, asked by every verb in little time and memory."""
