package record

import (
	"crypto/sha256"
	"fmt"
)

// DerivedID is the id of a record that follows from a text: the same for everybody
// who knows that, so that it is stored once. It is a UUID of version 8 (RFC 9562).
func DerivedID(of string) string {
	b := sha256.Sum256([]byte(of))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return uuid(b[:16])
}

// Alias is the id under which a store keeps a record of a node whose own id a record of
// another node has. A store that was emptied or restored has lost ids that Nodes
// display, and whoever appends first may take them.
func Alias(node, id string) string {
	return DerivedID("nvsentinel record " + id + " of node " + node)
}

// SameID says whether two ids name one record of a node: they are equal, or one is the
// alias of the other.
func SameID(node, a, b string) bool {
	return a == b || a == Alias(node, b) || Alias(node, a) == b
}

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
