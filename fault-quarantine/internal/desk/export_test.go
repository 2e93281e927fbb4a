package desk

// TellStranded looks once for stranded faults.
var TellStranded = (*Desk).tellStranded
