package check

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/gpu-health-monitor/reading"
	"github.com/nvidia/nvsentinel/health-monitors/xid"
)

// sameXID is how far apart the timestamps of one XID may be: a host engine that is started again
// reads the kernel's records again, and its timestamps differ by microseconds (DCGM 4.6.0).
const sameXID = time.Second

// occurrence is what an XID is known by, but for its time: the GPU, or the instance of an
// unknown one, and its number.
type occurrence struct {
	of     string
	number string
}

// seenKey is the key of an XID in State.Seen.
func (x occurrence) seenKey(at int64) string {
	return x.of + ":" + strconv.FormatInt(at, 10) + ":" + x.number
}

// occurrences are the times of the XIDs that were seen.
func (s State) occurrences() map[occurrence][]int64 {
	out := map[occurrence][]int64{}
	for key, at := range s.Seen {
		rest, number := cutLast(key)
		of, _ := cutLast(rest)
		x := occurrence{of, number}
		out[x] = append(out[x], at)
	}
	return out
}

func cutLast(s string) (before, after string) {
	i := max(strings.LastIndexByte(s, ':'), 0)
	return s[:i], strings.TrimPrefix(s[i:], ":")
}

// near reports whether one of some times is that of an XID.
func near(times []int64, at int64) bool {
	for _, t := range times {
		if apart := time.Duration(t-at) * time.Microsecond; apart.Abs() < sameXID {
			return true
		}
	}
	return false
}

// ofXID is the GPU of an XID, also where it struck a MIG instance; empty where the GPU of
// an instance is not known.
func (s State) ofXID(x reading.XID) string {
	if x.GPU != nil {
		return s.of(reading.Entity{Kind: reading.GPU, ID: *x.GPU})
	}
	return s.of(x.Entity)
}

// xids takes the XIDs that were not seen before, among those of the last hour. Of one
// number on one GPU, the first of a boot is reported.
func (d *deciding) xids(samples []reading.XID) {
	seen := d.State.occurrences()
	for _, x := range samples {
		of, code := d.State.ofXID(x), strconv.FormatInt(x.Number, 10)
		numbered := occurrence{entityKey(x.Entity), code} // before the UUID was known
		here := occurrence{cmp.Or(of, numbered.of), code}
		if x.Number <= 0 || near(seen[here], x.At) || near(seen[numbered], x.At) {
			continue
		}
		seen[here] = append(seen[here], x.At)
		d.State.Seen[here.seenKey(x.At)], d.State.LastXID[of], d.Changed = x.At, d.State.Boot, true
		d.NewXIDs = append(d.NewXIDs, x)
		d.struck(of, x.Number)
		if !d.p.Suppressed[code] {
			d.xid(x, of, code)
		}
	}
	d.State.forget(d.v.Now.Add(-d.p.Remember))
}

func (d *deciding) xid(x reading.XID, of, code string) {
	j := d.p.Catalogue.Evaluate(xid.Fault{Code: int(x.Number)}, d.v.Inventory.Driver)
	f := finding{
		check: XIDs, code: code, entity: x.Entity, of: of, action: j.Action, fatal: j.Fatal, edge: true, cured: j.RebootCures || !j.Fatal,
		text:  "XID " + code + " on GPU " + number(x.Entity.ID) + ", reported by DCGM",
		extra: map[string]string{"xidTime": x.Time().UTC().Format(time.RFC3339Nano)},
	}
	if x.GPU != nil {
		f.parent = &reading.Entity{Kind: reading.GPU, ID: *x.GPU}
		f.text = "XID " + code + " on a MIG instance of GPU " + number(*x.GPU) + ", reported by DCGM"
	}
	d.shown(f)
}

// alwaysFail are the XIDs of which DCGM makes a failure whatever is watched, under one code
// (DCGM 4.6.0); those with codes of their own are not among them.
var alwaysFail = []int{48, 74, 119, 120, 140}

// failing is the newest of them on a GPU; 0 without any XID under the present boot.
func (s State) failing(of string) (n int) {
	if s.LastXID[of] != s.Boot {
		return 0
	}
	newest := int64(0)
	for x, times := range s.occurrences() {
		i := slices.IndexFunc(alwaysFail, func(n int) bool { return x.number == strconv.Itoa(n) })
		if at := slices.Max(times); i >= 0 && x.of == of && at > newest {
			n, newest = alwaysFail[i], at
		}
	}
	return n
}

// stuck is the XID by which the driver reported that it does not answer for a GPU any more
// (119 and 120, of its GSP), under the present boot.
func (s State) stuck() (Fault, bool) {
	for _, key := range slices.Sorted(maps.Keys(s.Faults)) {
		if f := s.Faults[key]; f.Check == XIDs && (f.Code == "119" || f.Code == "120") && f.Boot == s.Boot {
			return f, true
		}
	}
	return Fault{}, false
}

// lastXID is when the newest XID of a GPU was, in µs since 1970; XID 154 is none.
func (s State) lastXID(of string) (newest int64) {
	for x, times := range s.occurrences() {
		if x.of != of || x.number == strconv.Itoa(recoveryChanged) {
			continue
		}
		for _, at := range times {
			newest = max(newest, at)
		}
	}
	return newest
}
