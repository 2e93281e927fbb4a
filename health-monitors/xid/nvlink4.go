package xid

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nvidia/nvsentinel/data-models/record"
)

// link is the NVLink of an XID 74, and its registers when there are seven and
// the parenthesis closes behind them: the end of a cut line is no number.
var link = regexp.MustCompile(`\blink\s+(\d{1,9})\((?:(0x[0-9a-fA-F]+(?:,\s*0x[0-9a-fA-F]+){6})\))?`)

// numbered is an NVLink that a text names in any other way: "Link 11", "link: 3".
var numbered = regexp.MustCompile(`(?i)\b(?:nv)?link[ :#]{1,3}(\d{1,9})\b`)

// anyLink is the first NVLink that a text numbers, empty when there is none.
func anyLink(text string) string {
	if m := numbered.FindStringSubmatch(text); m != nil {
		return number(m[1])
	}
	return ""
}

// parseLink reads the NVLink of an XID 74 ("link 2(0x10000, 0x0, ...)") and its
// registers, nil when one is missing, malformed or wider than 32 bits.
func parseLink(text string) (number string, registers []uint32) {
	m := link.FindStringSubmatch(text)
	if m == nil {
		return anyLink(text), nil
	}
	for word := range strings.SplitSeq(m[2], ",") {
		v, err := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(word), "0x"), 16, 32)
		if err != nil {
			return m[1], nil
		}
		registers = append(registers, uint32(v))
	}
	return m[1], registers
}

// ignorable are the bits of an XID 74's first register that the vendor's
// workflow says can be ignored: 0, 23 and 30.
const ignorable = 1 | 1<<23 | 1<<30

// onlyIgnorable tells whether registers are known and hold nothing but ignorable
// bits, and one of them at least.
func onlyIgnorable(registers []uint32) bool {
	return len(registers) > 0 && registers[0] != 0 && registers[0]&^ignorable == 0 &&
		!slices.ContainsFunc(registers[1:], func(r uint32) bool { return r != 0 })
}

// registerMetadata is how registers travel: 32 binary digits each. They are
// readings, and an entity says what is faulty.
func registerMetadata(registers []uint32) map[string]string {
	out := make(map[string]string, len(registers))
	for i, v := range registers {
		out[record.MetadataRegister+strconv.Itoa(i)] = fmt.Sprintf("%032b", v)
	}
	return out
}
