package kernellog

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// kernelTag is what loggers call the kernel, kernelFacility its facility.
const (
	kernelTag      = "kernel"
	kernelFacility = "kern"
)

// Headers that loggers put before a message, by what writes them. A message may hold
// any of these words too, so that each is looked for at the beginning of a line alone.
var (
	// decoded begins a line of dmesg --decode: facility and level.
	decoded = regexp.MustCompile(`^([a-z]\w{1,9}) *:(?:emerg|alert|crit|err|warn|notice|info|debug) *: `)
	// talos is what Talos writes: host, facility, level and time ("10.0.0.5: kern: warning:
	// [2026-03-01T12:00:00.1Z]: "). The host is there when a client asked several nodes.
	talos = regexp.MustCompile(`^(?:\S+: )?([a-z]\w{1,9}): +(?:emerg|alert|crit|err|warning|notice|info|debug): ` +
		`\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[^\[\]\s]{1,16}\]: ?`)
	// header is a time, a host and a program, as RFC 3164, rsyslog and journalctl write
	// them.
	header = regexp.MustCompile(`^(?:<\d{1,3}>)?(?:\d{1,2} )?(?:` + clock + `) \S+ ([^\s:\[]+)(?:\[[^\]\s]{0,20}\])?: ?`)
	// structured is the header of RFC 5424; the priority stands in messages on the wire.
	structured = regexp.MustCompile(`^(?:<\d{1,3}>)?1 \S+ \S+ (\S+) \S+ \S+ (?:-|(?:\[[^\]]*\])+) ?`)
	// named is a line that begins with the kernel's name, after the time since boot or
	// without one.
	named = regexp.MustCompile(`^(?:\[ *\d+\.\d{1,9}\] \S+ )?kernel(?:\[\d+\])?: ?`)
	// quoted is the frame of a container's log (CRI) or of journalctl --output=verbose.
	quoted = regexp.MustCompile(`^(?:\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) [FP] |\s*MESSAGE=)`)
	// stamp is a time that the kernel or dmesg writes, and the caller behind it.
	stamp = regexp.MustCompile(`^(?:<\d{1,3}>)?(?:\[ *\+?\d+\.\d{1,9}\] ?|\[[^\[\]]{0,24}\d\d:\d\d[^\[\]]{0,16}\] ?|\d{4}-\d\d-\d\dT[\d:,.]+\S* )?(?:\[ *[TC]\d+\] ?)?`)
)

// clock are the times of a header: Mar  1 12:00:00, 2026-03-01T12:00:00.123+00:00,
// Sun 2026-03-01 12:00:00 UTC, 1772366400.123456.
const clock = `\p{L}{3,5}\.? +\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?` +
	`|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*(?: [+-]\d{4})?` +
	`|\p{L}{2,4}\.? \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? \S+` +
	`|\d{9,11}\.\d{1,9}`

// Message returns the message in a line of a log file, without the header that a
// logger put before it, and the program that the header names as its writer; that is
// empty for the kernel, and where the line names nobody.
//
// A message of the kernel may quote programs: their names, files and arguments. So a
// message means something only from its beginning on.
func Message(line string) (text, program string) {
	line = line[len(quoted.FindString(line)):]
	for _, h := range []*regexp.Regexp{decoded, talos, structured, header} {
		m := h.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		rest := line[len(m[0]):]
		if m[1] == kernelTag || m[1] == kernelFacility && (h == decoded || h == talos) {
			return unstamped(rest), ""
		}
		return rest, m[1]
	}
	return unstamped(line[len(named.FindString(line)):]), ""
}

func unstamped(text string) string { return text[len(stamp.FindString(text)):] }

// withoutColon begins a message of the open GPU driver's releases 515 to 530, which wrote
// "NVRM function: " where all others write "NVRM: function: ".
var withoutColon = regexp.MustCompile(`^NVRM (?:GPU\d{1,3} )?\w+: `)

// Colon writes the beginning of a message of the GPU driver as all of its releases but
// some do, with a colon.
func Colon(message string) string {
	if withoutColon.MatchString(message) {
		return "NVRM: " + strings.TrimPrefix(message, "NVRM ")
	}
	return message
}

// stampPlace bounds where a line of a file has the kernel's stamp.
const stampPlace = 128

// SinceBoot is how long after the boot a line of a log file was written, by the stamp
// that the kernel puts before a message ("[    8.951695] "); 0 without one.
func SinceBoot(line string) time.Duration {
	line = line[:min(len(line), stampPlace)]
	for {
		_, rest, opened := strings.Cut(line, "[")
		stamp, _, closed := strings.Cut(rest, "]")
		if !opened || !closed {
			return 0
		}
		stamp = strings.TrimLeft(stamp, " ")
		if whole, part, is := strings.Cut(stamp, "."); is && len(whole) > 0 && len(part) == 6 {
			seconds, err := strconv.ParseFloat(stamp, 64)
			if err == nil && whole[0] >= '0' && whole[0] <= '9' {
				return time.Duration(seconds * float64(time.Second))
			}
		}
		line = rest
	}
}

// banner begins the first message that a kernel ever logs.
const banner = "Linux version "

// StartsBoot tells whether a line of a log file is the first one of a boot.
func StartsBoot(line string) bool {
	if !strings.Contains(line, banner) {
		return false
	}
	text, program := Message(line)
	return program == "" && strings.HasPrefix(text, banner)
}

// Tag is the program that a line names before at: the first word that ends in a
// colon, without its process id; empty when there is none.
func Tag(line string, at int) string {
	for word := range strings.FieldsSeq(line[:max(0, min(at, len(line)))]) {
		if name, is := strings.CutSuffix(word, ":"); is {
			name, _, _ = strings.Cut(name, "[")
			return name
		}
	}
	return ""
}
