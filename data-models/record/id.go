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

func uuid(b []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
