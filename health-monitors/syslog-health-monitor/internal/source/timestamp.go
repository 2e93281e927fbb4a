package source

import (
	"bytes"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/syslog-health-monitor/kernellog"
)

// timestampForm is how a line may begin with its time.
type timestampForm struct {
	layout string
	// zoned times say how far they are from UTC, yearless ones no year.
	zoned, yearless bool
}

// talosPlace bounds where Talos' time begins: host, facility and level stand before it.
const talosPlace = 300

// timestampOf is the time that a syslog line begins with, as text; empty without one.
func timestampOf(line string) (string, timestampForm) {
	if rest, ok := strings.CutPrefix(line, "<"); ok { // a priority
		if _, after, ok := strings.Cut(rest, ">"); ok {
			line = strings.TrimPrefix(after, "1 ") // RFC 5424
		}
	}
	if place := strings.Index(line[:min(len(line), talosPlace)], ": ["); place >= 0 {
		stamp, _, _ := strings.Cut(line[place+len(": ["):], "]: ")
		if len(stamp) > len(time.DateTime) && stamp[10] == 'T' {
			return stamp, timestampForm{layout: time.RFC3339, zoned: true}
		}
	}
	switch {
	case len(line) < len(time.Stamp):
	case line[0] >= 'A' && line[0] <= 'Z':
		return line[:len(time.Stamp)], timestampForm{layout: time.Stamp, yearless: true}
	case line[0] == '[' && line[1] >= 'A' && line[1] <= 'Z' && len(line) > len(time.ANSIC): // dmesg -T
		return line[1 : 1+len(time.ANSIC)], timestampForm{layout: time.ANSIC}
	case line[0] >= '0' && line[0] <= '9' && line[10] == 'T':
		word, _, _ := strings.Cut(line, " ")
		if len(word) < len("2006-01-02T15:04:05") {
			return "", timestampForm{}
		}
		if tail := word[11:]; strings.ContainsAny(tail, "Z+-") {
			return word, timestampForm{layout: time.RFC3339, zoned: true}
		}
		return word, timestampForm{layout: "2006-01-02T15:04:05"}
	}
	return "", timestampForm{}
}

// read is the time of a stamp in a zone. One without a year is of the last year in
// which it is not after the limit.
func (f timestampForm) read(stamp string, zone *time.Location, limit time.Time) (time.Time, bool) {
	if !f.yearless {
		at, err := time.ParseInLocation(f.layout, stamp, zone)
		return at, err == nil
	}
	for year := limit.Year() + 1; year > limit.Year()-9; year-- { // 29 February is eight years away at most
		at, err := time.ParseInLocation(f.layout+" 2006", stamp+" "+time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Format("2006"), zone)
		if err == nil && !at.After(limit) {
			return at, true
		}
	}
	return time.Time{}, false
}

// Bounds of what a file says about its writer's zone.
const (
	zoneStep = 15 * time.Minute // all zones in use are a multiple of it away from UTC
	zoneMost = 14 * time.Hour
	zoneNear = time.Minute // how near the last line was written to the file's own time
)

// stampSlack is how far in the future a stamp may be, for clocks and zones that
// are not as they are thought to be.
const stampSlack = 24 * time.Hour

// zoneOf finds the zone in which a file's stamps are: its last line was written
// when the file says that it was, in UTC. ok is false where that does not fit.
func zoneOf(tail []byte, changed time.Time) (*time.Location, bool) {
	tail = tail[:max(0, bytes.LastIndexByte(tail, '\n'))]
	last := kernellog.Clean(tail[bytes.LastIndexByte(tail, '\n')+1:])
	stamp, form := timestampOf(last)
	if stamp == "" || form.zoned {
		return nil, false
	}
	at, ok := form.read(stamp, time.UTC, changed.Add(stampSlack))
	ahead := at.Sub(changed)
	offset := ahead.Round(zoneStep)
	if !ok || offset.Abs() > zoneMost || (ahead-offset).Abs() > zoneNear {
		return nil, false
	}
	return time.FixedZone("", int(offset/time.Second)), true
}

// learnZone looks at the open file for the zone of its stamps; without an answer
// the last one stands.
func (s *File) learnZone(size int64, changed time.Time) {
	tail := make([]byte, min(size, 4<<10))
	if n, err := s.open.ReadAt(tail, size-int64(len(tail))); err == nil || n == len(tail) {
		if zone, ok := zoneOf(tail, changed); ok {
			s.zone = zone
		}
	}
}

// written is when a line was: what it says, but neither before the file had been
// read to the place before it nor in the future. It is zero for a line that does
// not say.
func (s *File) written(line string) time.Time {
	stamp, form := timestampOf(line)
	if stamp == "" {
		return time.Time{}
	}
	if stamp == s.stamp {
		return s.stamped
	}
	now := s.clock.Now()
	at, ok := form.read(stamp, s.zone, now.Add(stampSlack))
	if !ok {
		return time.Time{}
	}
	if ended := time.Unix(0, s.cursor.Ended); s.cursor.Ended != 0 && at.Before(ended) {
		at = ended
	}
	if at.After(now) {
		at = now
	}
	s.stamp, s.stamped = stamp, at.UTC()
	return s.stamped
}
