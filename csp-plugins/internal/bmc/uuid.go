package bmc

import (
	"slices"

	"github.com/google/uuid"
)

// The 16 bytes of a system UUID are written in several orders. SMBIOS keeps the
// first three fields with their lowest byte first, and the texts of Linux and of
// Redfish have turned them (SMBIOS reference specification, 7.2.1); firmware of
// before SMBIOS 2.6 has not. IPMI sends all 16 bytes lowest first (IPMI 2.0,
// table 20-10), and many BMCs send them in the order of SMBIOS or of the text
// instead. An order is a permutation: two texts that agree in one of them are 16
// equal bytes, which no two machines with UUIDs of their own have.

// sameUUID says whether two texts are one UUID in any of the known orders.
func sameUUID(one, other string) bool {
	a, ok := parseUUID(one)
	b, also := parseUUID(other)
	if !ok || !also {
		return false
	}
	return slices.Contains([]uuid.UUID{b, turnFields(b), reverse(b), turnFields(reverse(b)), reverse(turnFields(b))}, a)
}

// parseUUID reads 32 hexadecimal digits, with or without hyphens.
func parseUUID(text string) (uuid.UUID, bool) {
	if len(text) != 36 && len(text) != 32 {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(text)
	return id, err == nil
}

// turnFields reverses the bytes of each of the first three fields.
func turnFields(u uuid.UUID) uuid.UUID {
	slices.Reverse(u[0:4])
	slices.Reverse(u[4:6])
	slices.Reverse(u[6:8])
	return u
}

func reverse(u uuid.UUID) uuid.UUID {
	slices.Reverse(u[:])
	return u
}
