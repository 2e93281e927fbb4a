package record

// Lemon is the reason of a Remediation that was left to a person because the machine
// needed too many repairs: no monitor's recovery ends its session.
const Lemon = "Lemon"

// KeptLemon says whether a record keeps its session for a person.
func KeptLemon(s Status) bool {
	return s.Remediation != nil && s.Remediation.Outcome == OutcomeNeedsHuman && s.Remediation.Reason == Lemon
}
