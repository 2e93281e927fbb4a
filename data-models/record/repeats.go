package record

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Metadata keys of a record that stands for several identical events, which the
// connector counted and did not store one by one. The record itself is the last
// of them.
const (
	// MetadataRepeats is how many events the record stands for, itself included.
	MetadataRepeats = "repeats"
	// MetadataRepeatsSince is when the first of them happened, RFC 3339.
	MetadataRepeatsSince = "repeatsSince"
	// MetadataRepeatTimes is when they happened, as bursts: each is
	// "<ms before the record's event>+<ms that it lasted>x<events>".
	MetadataRepeatTimes = "repeatTimes"
)

// MaxBursts bounds the bursts of one record.
const MaxBursts = 64

// maxBurst bounds the events of one burst that a reader believes.
const maxBurst = 1 << 20

const sinceFormat = "2006-01-02T15:04:05.000Z07:00"

// Burst is a number of identical events that came close upon each other.
type Burst struct {
	From, To time.Time
	Count    int
}

// Repeated is the event as one that stands for all events of the bursts, which are
// in order and end with the event itself.
func Repeated(e Event, bursts []Burst) Event {
	n, texts := 0, make([]string, 0, len(bursts))
	for _, r := range bursts {
		n += r.Count
		texts = append(texts, fmt.Sprintf("%d+%dx%d",
			e.GeneratedTimestamp.Sub(r.From).Milliseconds(), r.To.Sub(r.From).Milliseconds(), r.Count))
	}
	metadata := maps.Clone(e.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[MetadataRepeats] = strconv.Itoa(n)
	metadata[MetadataRepeatsSince] = bursts[0].From.UTC().Format(sinceFormat)
	metadata[MetadataRepeatTimes] = strings.Join(texts, ",")
	e.Metadata = metadata
	return e
}

// Repeats is how many identical events the event stands for, and since when they
// came: 1, and its own time, unless it states otherwise.
func (e Event) Repeats() (n int, since time.Time) {
	n, err := strconv.Atoi(e.Metadata[MetadataRepeats])
	if err != nil || n < 2 {
		return 1, e.GeneratedTimestamp
	}
	since, err = time.Parse(time.RFC3339Nano, e.Metadata[MetadataRepeatsSince])
	if err != nil {
		since = e.GeneratedTimestamp
	}
	return n, since
}

// Bursts are when the events happened for which the event stands; none if it stands
// for itself, or if its times cannot be read.
func (e Event) Bursts() []Burst {
	text := e.Metadata[MetadataRepeatTimes]
	if text == "" {
		return nil
	}
	var out []Burst
	for one := range strings.SplitSeq(text, ",") {
		var before, lasted, count int64
		if n, err := fmt.Sscanf(one, "%d+%dx%d", &before, &lasted, &count); err != nil || n != 3 ||
			lasted < 0 || count < 1 || count > maxBurst || len(out) == MaxBursts {
			return nil
		}
		from := e.GeneratedTimestamp.Add(-time.Duration(before) * time.Millisecond)
		out = append(out, Burst{from, from.Add(time.Duration(lasted) * time.Millisecond), int(count)})
	}
	return out
}
