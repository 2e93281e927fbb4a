package removal

// Reason says why an item is removed or left.
type Reason string

// Reasons of a removal.
const (
	// Ours: the suite wrote it, and nothing speaks for it.
	Ours Reason = "Ours"
	// Released: its node leaves quarantine, or its repair is given up, as was asked for.
	Released Reason = "Released"
	// Asked: it goes with its definition, as was asked for.
	Asked Reason = "Asked"
)

// Reasons to leave an item.
const (
	InQuarantine     Reason = "InQuarantine"
	PreExisting      Reason = "PreExisting"
	OfAPerson        Reason = "OfAPerson"
	Uncertain        Reason = "Uncertain"
	ServicesOff      Reason = "ServicesOff"
	InUse            Reason = "InUse"
	NotEnded         Reason = "NotEnded"
	ForeignFinalizer Reason = "ForeignFinalizer"
	NotAsked         Reason = "NotAsked"
	ObjectsStay      Reason = "ObjectsStay"
	Shared           Reason = "Shared"
	Going            Reason = "Going"
	Expires          Reason = "Expires"
	OnTheNode        Reason = "OnTheNode"
)

// Text is the reason in words.
func (r Reason) Text() string {
	switch r {
	case Ours:
		return ""
	case Released:
		return "as --release-nodes asks"
	case Asked:
		return "as --crds asks"
	case InQuarantine:
		return "in quarantine, not repaired; --release-nodes takes the node out"
	case PreExisting:
		return "it was there before the quarantine, and is somebody else's"
	case OfAPerson:
		return "people write it, no service does"
	case Uncertain:
		return "it looks like ours, and is not as the services write it: look at it yourself"
	case ServicesOff:
		return "GPU services are off the node: set their labels as status.services of the GPUReset says, then remove it by hand"
	case InUse:
		return "it is held and renewed"
	case NotEnded:
		return "the repair has not ended; --release-nodes gives it up"
	case ForeignFinalizer:
		return "somebody else's finalizer holds it"
	case NotAsked:
		return "--crds removes it, with all objects of the kind"
	case ObjectsStay:
		return "objects of the kind stay"
	case Shared:
		return "the kind is medik8s', another operator may use it"
	case Going:
		return "it is being removed"
	case Expires:
		return "they expire by themselves, within the API server's --event-ttl"
	case OnTheNode:
		return "no client of the API server reaches it"
	}
	return string(r)
}
