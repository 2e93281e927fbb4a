package passage

// This part of the package decides what of a node's records is stored when the node has brought more
// than its quota of the day. It does no I/O and reads no clock.
//
// Within the quota everything is stored. Beyond it events that are for the record only,
// and repeats of what is stored, are counted instead; new faults and recoveries are
// stored as long as a reserve lasts, which is as large as the quota. When that is spent
// too, faults of a check that differ in what they are about become one fault of the whole
// check, which only a recovery of the whole check ends; what is new is stored at a
// trickle, and waits at its node for its turn. So no fault is lost, and a node that says
// ever new things cannot fill the store.

// Quota are what a node may bring in one day, counted from midnight UTC. 0 is no bound.
type Quota struct{ Bytes, Records int64 }

// Use is what a node has brought in a day and the store has taken.
type Use struct{ Bytes, Records int64 }

// Plus is the sum of two uses.
func (u Use) Plus(o Use) Use { return Use{u.Bytes + o.Bytes, u.Records + o.Records} }

// Level says how much of its quota a node has used.
type Level int

// Levels.
const (
	// Within: the quota is not used up.
	Within Level = iota
	// Beyond: the quota is used up, the reserve is not.
	Beyond
	// Spent: the reserve is used up too.
	Spent
)

// Level of a use.
func (l Quota) Level(u Use) Level {
	switch share := l.Share(u); {
	case share >= 2:
		return Spent
	case share >= 1:
		return Beyond
	}
	return Within
}

// Share is the part of its quota that a node has used: the larger of bytes and records.
func (l Quota) Share(u Use) float64 {
	share := 0.0
	if l.Bytes > 0 {
		share = float64(u.Bytes) / float64(l.Bytes)
	}
	if l.Records > 0 {
		share = max(share, float64(u.Records)/float64(l.Records))
	}
	return share
}

// Verdict is what becomes of one record. It is the label value of a counter.
type Verdict string

// Verdicts.
const (
	// Store: the record is stored as it is.
	Store Verdict = "store"
	// Merge: the record is stored as a fault of the whole check.
	Merge Verdict = "merge"
	// Observed: the record is for the record only, and is counted.
	Observed Verdict = "persist-only"
	// Repeat: the record says what is stored, and is counted.
	Repeat Verdict = "repeat"
)

// Counted says that a record is not stored.
func (v Verdict) Counted() bool { return v == Observed || v == Repeat }

// Verdicts lists every verdict by which a record is counted or changed, in a fixed order.
func Verdicts() []Verdict { return []Verdict{Merge, Observed, Repeat} }
