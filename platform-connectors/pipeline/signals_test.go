package pipeline

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/nvidia/nvsentinel/data-models/record"
)

const kernel, dcgm = "SysLogsXIDError", "GpuAllWatch"

// node is a node's events on their way through the pipeline into the set.
type node struct {
	t     *testing.T
	rules *Pipeline
	set   *Signals
	seq   int
	now   time.Time
}

func newNode(t *testing.T, rules ...ConfirmRule) *node {
	t.Helper()
	c := Default()
	c.Stages, c.Confirmation.Rules = []string{StageConfirmation}, rules
	p, err := Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	return &node{t: t, rules: p, set: &Signals{}}
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// idOf is the id of a word of a story.
func idOf(word string) string {
	id := uuid.NewSHA1(uuid.Nil, []byte(word))
	id[6] = id[6]&0x0f | 0x40
	return id.String()
}

// event is what a word of a story stands for: k is the kernel's fault, d DCGM's,
// -k and -d are their recoveries, then the device (* is none) and the second.
// A suffix changes it: b another boot, n without a boot, p for the record only, c one more
// code, w GPU B as well.
func (n *node) event(word string) record.Record {
	what, at, _ := strings.Cut(word, "@")
	suffix := strings.TrimLeft(at, "0123456789")
	second, err := strconv.Atoi(strings.TrimSuffix(at, suffix))
	if err != nil {
		n.t.Fatal(err)
	}
	healthy := strings.HasPrefix(what, "-")
	what = strings.TrimPrefix(what, "-")
	n.seq++
	e := record.Event{
		ID: idOf(word), Agent: "syslog-health-monitor", CheckName: kernel, ErrorCode: []string{"79"}, ComponentClass: "GPU", NodeName: "n",
		IsFatal: !healthy, IsHealthy: healthy, RecommendedAction: record.ActionRestartBM, ProcessingStrategy: record.Process,
		EntitiesImpacted: []record.Entity{{EntityType: "PCI", EntityValue: "0000:" + strings.ToLower(what[1:]) + "1:00"}},
		Metadata:         map[string]string{record.MetadataSeq: fmt.Sprint(n.seq), record.MetadataSeqEpoch: "k", record.MetadataSeqRuns: "run", record.MetadataBootID: "1"},
	}
	if what[:1] == "d" {
		e.Agent, e.CheckName, e.ErrorCode = "gpu-health-monitor", dcgm, []string{"DCGM_FR_GPU_LOST"}
		e.EntitiesImpacted = []record.Entity{{EntityType: "GPU", EntityValue: "7"}, {EntityType: "PCI", EntityValue: "00000000:" + what[1:] + "1:00.0"}}
		e.Metadata[record.MetadataSeqEpoch] = "d"
	}
	if what[1:] == "*" {
		e.EntitiesImpacted = nil
	}
	for _, s := range suffix {
		switch s {
		case 'b':
			e.Metadata[record.MetadataBootID] = "2"
		case 'n':
			delete(e.Metadata, record.MetadataBootID)
		case 'p':
			e.ProcessingStrategy = record.PersistOnly
		case 'c':
			e.ErrorCode = append(e.ErrorCode, "31")
		case 'w':
			e.EntitiesImpacted = append(e.EntitiesImpacted, record.Entity{EntityType: "PCI", EntityValue: "0000:b1:00"})
		}
	}
	n.now = began.Add(time.Duration(second) * time.Second)
	r := record.Record{ID: e.ID, CreatedAt: n.now, Event: e}
	r.Seq, r.SeqEpoch, _ = e.Seq()
	return r
}

// runStory folds a story and returns who was confirmed by whom, and how waits ended.
// The file is read again between all events, as by a process that is killed.
func (n *node) runStory(story string) string {
	n.t.Helper()
	words := map[string]string{}
	var out []string
	for word := range strings.FieldsSeq(story) {
		var ends []WaitEnd
		if word == "release" {
			n.set.Release()
		} else if at, stands := strings.CutPrefix(word, "stands@"); stands {
			second, _ := strconv.Atoi(at)
			now := began.Add(time.Duration(second) * time.Second)
			ends = n.set.Pass(now, func(w WaitingFault) time.Duration { return now.Sub(w.Since) })
		} else {
			r := n.event(word)
			words[r.ID] = word
			as, notes := n.rules.Apply(r.Event, nil)
			if waits := notes.Waits != nil; waits && as.ProcessingStrategy != record.PersistOnly {
				n.t.Errorf("%s waits and is %s", word, as.ProcessingStrategy)
			}
			ends, _ = n.set.Fold(Observation{r, as, notes})
		}
		for _, r := range n.set.Outbox {
			out = append(out, words[r.Event.Confirms()]+"<"+words[r.Event.Metadata[record.MetadataConfirmedBy]])
		}
		n.set.Outbox = nil
		for _, end := range ends {
			if end != EndConfirmed {
				out = append(out, string(end))
			}
		}
		n.reopen()
	}
	return strings.Join(out, " ")
}

func (n *node) reopen() {
	b, err := json.Marshal(n.set)
	if err != nil {
		n.t.Fatal(err)
	}
	n.set = &Signals{}
	if err := json.Unmarshal(b, n.set); err != nil {
		n.t.Fatal(err)
	}
}

func TestStories(t *testing.T) {
	when := fmt.Sprintf("event.checkName == %q && '79' in event.errorCode", kernel)
	second := ConfirmRule{Name: "both", When: when, Second: fmt.Sprintf("event.checkName == %q", dcgm), Within: time.Minute}
	ofNode, mutual, either := second, second, second
	ofNode.About, mutual.Mutual = AboutNode, true
	either.Reports, either.StandsFor = 2, 5*time.Minute
	reports := ConfirmRule{Name: "thrice", When: when, Reports: 3, Within: time.Minute}
	stands := ConfirmRule{Name: "stands", When: when, StandsFor: 2 * time.Minute}
	for name, tc := range map[string]struct {
		rule        ConfirmRule
		story, want string
	}{
		"the kernel alone":                    {second, "kA@0 kA@30 kB@50", ""},
		"then DCGM":                           {second, "kA@0 dA@5", "kA@0<dA@5"},
		"DCGM first":                          {second, "dA@0 kA@5", "kA@5<dA@0"},
		"DCGM, the kernel, DCGM":              {second, "dA@0 kA@5 dA@9", "kA@5<dA@0"},
		"once, whatever comes behind":         {second, "kA@0 dA@5 dA@6 kA@7 kA@8 dA@9", "kA@0<dA@5"},
		"the newest of its repeats":           {second, "kA@0 kA@40 dA@80", "kA@40<dA@80"},
		"another GPU":                         {second, "kA@0 dB@5", ""},
		"another GPU, then this":              {second, "kA@0 dB@5 dA@6", "kA@0<dA@6"},
		"at the last moment":                  {second, "kA@0 dA@60", "kA@0<dA@60"},
		"too late":                            {second, "kA@0 dA@61", "lapsed"},
		"too late, and in time again":         {second, "kA@0 dA@61 kA@70", "lapsed kA@70<dA@61"},
		"a clock that is set back":            {second, "kA@100 dA@60", "kA@100<dA@60"},
		"a clock that is set far back":        {second, "kA@1000 dA@0", "lapsed"},
		"the node is no device":               {second, "kA@0 d*@5", ""},
		"the node is enough":                  {ofNode, "kA@0 d*@5", "kA@0<d*@5"},
		"the node, for two GPUs":              {ofNode, "kA@0 kB@1 d*@5", "kA@0<d*@5 kB@1<d*@5"},
		"for the record only":                 {second, "kA@0p dA@5", ""},
		"by what is for the record only":      {second, "kA@0 dA@5p", ""},
		"a boot that the first does not say":  {second, "kA@0n dA@5", "kA@0n<dA@5"},
		"a boot that the second does not say": {second, "kA@0 dA@5n", "kA@0<dA@5n"},
		"another boot":                        {second, "kA@0 dA@5b", ""},
		"another code with it":                {second, "kA@0c dA@5", ""},
		"its recovery":                        {second, "kA@0 -kA@3 dA@5", "recovered"},
		"its recovery, of all":                {second, "kA@0 -k*@3 dA@5", "recovered"},
		"one of two GPUs recovers":            {second, "kA@0w -kB@3 dA@5", "kA@0w<dA@5"},
		"the other of two recovers":           {second, "kA@0w -kA@3 dA@5", ""},
		"both of two recover":                 {second, "kA@0w -kA@3 -kB@4 dA@5", "recovered"},
		"another's recovery":                  {second, "kA@0 -kB@3 dA@5", "kA@0<dA@5"},
		"a recovery for the record only":      {second, "kA@0 -kA@3p dA@5", "kA@0<dA@5"},
		"the second's recovery":               {second, "dA@0 -dA@3 kA@5", ""},
		"the second's, and again":             {second, "dA@0 -dA@3 kA@5 dA@6", "kA@5<dA@6"},
		"confirmed, recovered, and again":     {second, "kA@0 dA@5 -kA@7 kA@9", "kA@0<dA@5 kA@9<dA@5"},
		"both recovered, and again":           {second, "kA@0 dA@5 -kA@7 -dA@8 kA@9", "kA@0<dA@5"},
		"long after, and again":               {second, "kA@0 dA@5 kA@70 dA@75", "kA@0<dA@5 kA@70<dA@75"},
		"confirmed, a minute later":           {second, "kA@0 dA@5 kA@65 dA@66", "kA@0<dA@5"},
		"confirmed, a second more":            {second, "kA@0 dA@5 kA@66 dA@67", "kA@0<dA@5 kA@66<dA@67"},
		"a person ended it, and again":        {second, "kA@0 dA@5 release kA@7", "kA@0<dA@5 kA@7<dA@5"},
		"a person ended another":              {second, "kA@0 release dA@5", "kA@0<dA@5"},
		"each waits for the other":            {mutual, "dA@0 kA@5", "kA@5<dA@0"},
		"three reports":                       {reports, "kA@0 kA@10 kA@20 kA@30", "kA@20<kA@20"},
		"three, one sent again":               {reports, "kA@0 kA@10 kA@10", ""},
		"three of several GPUs":               {reports, "kA@0 kB@10 kA@20", ""},
		"three in just a minute":              {reports, "kA@0 kA@30 kA@60", "kA@60<kA@60"},
		"three in a second more":              {reports, "kA@0 kA@30 kA@61", ""},
		"three of the last minute":            {reports, "kA@0 kA@50 kA@70 kA@80", "kA@80<kA@80"},
		"two, beside standing":                {ConfirmRule{Name: "e", When: when, Reports: 2, Within: time.Minute, StandsFor: 5 * time.Minute}, "kA@0 kA@70 kA@80", "kA@80<kA@80"},
		"three, too slow":                     {reports, "kA@0 kA@50 kA@90", ""},
		"three, a recovery between":           {reports, "kA@0 kA@10 -kA@15 kA@20", "recovered"},
		"nothing comes":                       {second, "kA@0 stands@119 stands@120", "lapsed"},
		"nothing came yet":                    {second, "kA@0 stands@119", ""},
		"nothing comes, and again":            {second, "kA@0 stands@120 kA@121 dA@122", "lapsed kA@121<dA@122"},
		"it stands":                           {stands, "kA@0 stands@119 stands@120 stands@500", "kA@0<kA@0"},
		"it stands, reported again":           {stands, "kA@0 kA@60 stands@120", "kA@60<kA@60"},
		"it stands, and long after":           {stands, "kA@0 kB@500 stands@500", "kA@0<kA@0"},
		"it does not stand":                   {stands, "kA@0 -kA@100 stands@120", "recovered"},
		"whichever is first: two reports":     {either, "kA@0 kA@9 stands@300", "kA@9<kA@9"},
		"whichever is first: the second":      {either, "kA@0 dA@9 kA@10 stands@300", "kA@0<dA@9"},
		"whichever is first: it stands":       {either, "kA@0 kA@100 dA@200 stands@300", "kA@100<kA@100"},
		"what no rule is about is no wait":    {reports, "dA@0 dA@1 dA@2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newNode(t, tc.rule).runStory(tc.story); got != tc.want {
				t.Errorf("%s: %q, want %q", tc.story, got, tc.want)
			}
		})
	}
}

// TestConfirmationMatching: the same fault in its publisher's order, so that a
// recovery that was there before is later than it.
func TestConfirmationMatching(t *testing.T) {
	n := newNode(t, ConfirmRule{Name: "r", When: "true", Second: "event.checkName == 'GpuAllWatch'", Within: time.Minute})
	fold := func(r record.Record) {
		as, notes := n.rules.Apply(r.Event, nil)
		n.set.Fold(Observation{r, as, notes})
	}
	x, y := n.event("kA@0"), n.event("dA@5")
	fold(x)
	fold(y)
	if len(n.set.Outbox) != 1 {
		t.Fatalf("%d confirmations", len(n.set.Outbox))
	}
	r := n.set.Outbox[0]
	e := r.Event
	if e.Confirms() != x.ID || e.Metadata[record.MetadataConfirmedBy] != y.ID || e.Metadata[record.MetadataConfirmedRule] != "r" {
		t.Errorf("it says %v", e.Metadata)
	}
	if r.Seq != x.Seq || r.SeqEpoch != x.SeqEpoch || e.BootID() != "1" || !r.Acts() || !e.IsFatal || e.RecommendedAction != record.ActionRestartBM ||
		r.Accepted != record.ConfirmationContent(r.ID) || !r.CreatedAt.Equal(y.CreatedAt) {
		t.Errorf("it is %+v", r)
	}
	as, notes := n.rules.Apply(e, nil)
	if as.ProcessingStrategy != record.Process || notes.Waits != nil || notes.SecondOf != nil {
		t.Errorf("on its own way it is %s, %+v", as.ProcessingStrategy, notes)
	}
}

// TestRecoveredFaultIsNotConfirmed: a confirmation that was decided and not handed on,
// of a publisher that does not count, would come behind its recovery.
func TestRecoveredFaultIsNotConfirmed(t *testing.T) {
	n := newNode(t, ConfirmRule{Name: "r", When: "event.checkName == 'SysLogsXIDError'", Second: "event.checkName == 'GpuAllWatch'", Within: time.Minute})
	for _, word := range []string{"kA@0", "dA@5", "-kA@6"} {
		r := n.event(word)
		delete(r.Event.Metadata, record.MetadataSeq)
		r.Seq, r.SeqEpoch = 0, ""
		as, notes := n.rules.Apply(r.Event, nil)
		if _, changed := n.set.Fold(Observation{r, as, notes}); !changed {
			t.Errorf("%s changed nothing", word)
		}
	}
	if len(n.set.Outbox) != 0 {
		t.Errorf("%d confirmations of what has recovered", len(n.set.Outbox))
	}
}

// TestSecondsAreBoundedInBytes: they are in the file, which a flood writes again and
// again.
func TestSecondsAreBoundedInBytes(t *testing.T) {
	n := newNode(t, ConfirmRule{Name: "r", When: "event.checkName == 'SysLogsXIDError'", Second: "event.checkName == 'GpuAllWatch'", Within: time.Minute})
	for i := range MaxSeconds {
		e := n.event("dA@" + fmt.Sprint(i))
		e.Event.EntitiesImpacted = nil
		for k := range 50 {
			e.Event.EntitiesImpacted = append(e.Event.EntitiesImpacted, record.Entity{EntityType: "GPU_UUID", EntityValue: fmt.Sprint(i, "-", k, strings.Repeat("x", 480))})
		}
		as, notes := n.rules.Apply(e.Event, nil)
		n.set.Fold(Observation{e, as, notes})
	}
	if encoded, err := json.Marshal(n.set); err != nil || len(encoded) > 2*MaxBytes || len(n.set.Seconds) < 10 {
		t.Errorf("%d seconds in %d bytes, %v", len(n.set.Seconds), len(encoded), err)
	}
}

// TestTheOldestAreForgotten at the bounds, and counted.
func TestTheOldestAreForgotten(t *testing.T) {
	n := newNode(t, ConfirmRule{Name: "r", When: "event.checkName == 'SysLogsXIDError'", Second: "event.checkName == 'GpuAllWatch'", Within: 24 * time.Hour})
	forgotten := 0
	fold := func(e record.Record) {
		as, notes := n.rules.Apply(e.Event, nil)
		ends, _ := n.set.Fold(Observation{e, as, notes})
		for _, end := range ends {
			if end == EndForgotten {
				forgotten++
			}
		}
	}
	for i := range MaxWaits + 10 {
		for _, kind := range []string{"kA@", "dA@"} {
			e := n.event(kind + fmt.Sprint(i))
			e.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: fmt.Sprint(kind, i)}}
			fold(e)
		}
	}
	if len(n.set.Waits) != MaxWaits || len(n.set.Seconds) != MaxSeconds || forgotten != 10 {
		t.Errorf("%d wait, %d seconds, %d forgotten", len(n.set.Waits), len(n.set.Seconds), forgotten)
	}
	for i := range MaxWaits {
		e := n.event("kB@" + fmt.Sprint(i))
		e.Event.Message = strings.Repeat("x", 30<<10)
		e.Event.EntitiesImpacted = []record.Entity{{EntityType: "GPU_UUID", EntityValue: fmt.Sprint("large", i)}}
		fold(e)
	}
	bytes := 0
	for _, w := range n.set.Waits {
		bytes += size(w.Record.Event)
	}
	if bytes > MaxBytes || n.set.Waiting() < 100 {
		t.Errorf("%d bytes in %d waits", bytes, n.set.Waiting())
	}
	if encoded, err := json.Marshal(n.set); err != nil || len(encoded) > 2*MaxBytes {
		t.Errorf("%d bytes, %v", len(encoded), err)
	}
}
