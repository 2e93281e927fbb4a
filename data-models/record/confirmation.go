package record

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Metadata of a fault that its connector made PERSIST_ONLY because a rule wants
// it confirmed first, and of the event that reports that it was.
const (
	// MetadataStrategyReason is why a connector made an event PERSIST_ONLY.
	MetadataStrategyReason = "strategyReason"
	// MetadataUnconfirmedRule is the rule that holds an unconfirmed fault.
	MetadataUnconfirmedRule = "unconfirmedRule"
	// MetadataWaitsFor describes what would confirm it.
	MetadataWaitsFor = "waitsFor"
	// MetadataWaitsWithin is for how long after the event, as a duration. It is no
	// time, so that the repeats of an event are equal.
	MetadataWaitsWithin = "waitsWithin"
	// MetadataConfirms is the id of the event that a confirmation has acted upon.
	MetadataConfirms = "confirms"
	// MetadataConfirmedBy is the id of the event that confirmed it; of a fault that
	// stood for long enough, that of the fault itself.
	MetadataConfirmedBy = "confirmedBy"
	// MetadataConfirmedRule is the rule, and MetadataConfirmedHow describes how it was
	// met.
	MetadataConfirmedRule = "confirmedRule"
	MetadataConfirmedHow  = "confirmedHow"
)

// Unconfirmed means that a rule of the connector wants the fault confirmed by a second signal, further reports or time, so
// it is stored as PERSIST_ONLY until then. Action: none. `nvsentinel why <node>` shows how it can be confirmed and
// until when.
const Unconfirmed = "Unconfirmed"

// Waits reports whether an event is a fault that waits to be confirmed, what would
// confirm it, and for how long after it was accepted; 0 is not known.
func (e Event) Waits() (what string, within time.Duration, ok bool) {
	if e.ProcessingStrategy != PersistOnly || e.Metadata[MetadataStrategyReason] != Unconfirmed {
		return "", 0, false
	}
	within, err := time.ParseDuration(e.Metadata[MetadataWaitsWithin])
	if err != nil {
		within = 0
	}
	return e.Metadata[MetadataWaitsFor], within, true
}

// ConfirmationID is the id of the event that has a waiting event, given by its id,
// acted upon: always the same, so that it is stored once whatever confirms it and
// however often that is found out. It is of the version of the waiting event's id,
// and nobody can guess it who does not know that.
func ConfirmationID(waiting string) (string, error) {
	of, err := hex.DecodeString(strings.ReplaceAll(waiting, "-", ""))
	if err != nil || len(of) != 16 || uuid(of) != waiting {
		return "", fmt.Errorf("%q is not a lower-case UUID", waiting)
	}
	sum := sha256.Sum256([]byte("nvsentinel confirmation of " + waiting))
	id := sum[:16]
	version := byte(0x40)
	if of[6]>>4 == 7 {
		version = 0x70
		copy(id[:6], of[:6]) // its time
	}
	id[6], id[8] = id[6]&0x0f|version, id[8]&0x3f|0x80
	return uuid(id), nil
}

// ConfirmationContent is the content (see Content) of a confirmation: whatever it
// reports, two with one id are the same.
func ConfirmationContent(id string) string {
	sum := sha256.Sum256([]byte("nvsentinel confirmation " + id))
	return hex.EncodeToString(sum[:])
}

// Confirms is the id of the event that this one has acted upon, or empty.
func (e Event) Confirms() string {
	of := e.Metadata[MetadataConfirms]
	if id, err := ConfirmationID(of); of == "" || err != nil || id != e.ID {
		return ""
	}
	return of
}

// DerivedID is the id of a record that follows from a text: the same for everybody
// who knows that, so that it is stored once. It is a UUID of version 8 (RFC 9562).
func DerivedID(of string) string {
	b := sha256.Sum256([]byte(of))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return uuid(b[:16])
}

// Alias is the id under which a store keeps a record of a node whose own id a record of
// another node has. A store that was emptied or restored has lost ids that Nodes
// still list; the first record appended with such an id takes it.
func Alias(node, id string) string {
	return DerivedID("nvsentinel record " + id + " of node " + node)
}

// SameID reports whether two ids name one record of a node: they are equal, or one is the
// alias of the other.
func SameID(node, a, b string) bool {
	return a == b || a == Alias(node, b) || Alias(node, a) == b
}

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
