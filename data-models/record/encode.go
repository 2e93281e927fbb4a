package record

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/data-models/extra"
)

// AppendJSON adds the record's document to b. It is the encoding of package
// json, byte by byte, in a fifth of its time: every record is encoded several
// times on its way into a store. What the record has that this version does not know
// is in it. Fails where json does, on a year outside 0..9999.
func AppendJSON(b []byte, r Record) ([]byte, error) {
	at := len(b)
	b, err := appendFields(b, r)
	if err != nil {
		return nil, err
	}
	return r.documentExtra().MergeJSON(b, at)
}

// MarshalJSON is AppendJSON.
func (r Record) MarshalJSON() ([]byte, error) { return AppendJSON(nil, r) }

// appendFields adds what this version knows of the record.
func appendFields(b []byte, r Record) (_ []byte, err error) {
	b = appendText(append(b, `{"id":`...), r.ID)
	if b, err = appendTime(append(b, `,"createdAt":`...), &r.CreatedAt); err != nil {
		return nil, err
	}
	b = strconv.AppendInt(append(b, `,"revision":`...), r.Revision, 10)
	b = strconv.AppendInt(append(b, `,"append":`...), r.Append, 10)
	b = appendText(append(b, `,"node":{"uid":`...), r.Node.UID)
	b = appendText(append(b, `,"providerid":`...), r.Node.ProviderID)
	b = appendText(append(b, `,"systemuuid":`...), r.Node.SystemUUID)
	b = appendText(append(b, `,"bootid":`...), r.Node.BootID)
	b = strconv.AppendUint(append(b, `},"seq":`...), r.Seq, 10)
	b = appendText(append(b, `,"seqepoch":`...), r.SeqEpoch)
	if r.Accepted != "" {
		b = appendText(append(b, `,"accepted":`...), r.Accepted)
	}
	if b, err = appendEvent(append(b, `,"healthevent":`...), r.Event); err != nil {
		return nil, err
	}
	status := blankStatus
	if !r.Status.Blank() {
		if status, err = json.Marshal(r.Status); err != nil {
			return nil, err
		}
	}
	b = append(append(b, `,"healtheventstatus":`...), status...)
	if b, err = appendTime(append(b, `,"expireAt":`...), r.ExpireAt); err != nil {
		return nil, err
	}
	if r.MinVersion != 0 {
		b = strconv.AppendInt(append(b, `,"minversion":`...), int64(r.MinVersion), 10)
	}
	return append(b, '}'), nil
}

// blankStatus is the document of a status that no service has updated.
var blankStatus, _ = json.Marshal(Status{}) // which encodes, as the tests see

// Blank reports whether no service has updated the record yet.
func (s Status) Blank() bool {
	return s.NodeQuarantined == NotQuarantined && s.QuarantineFinishTimestamp == nil &&
		s.UserPodsEvictionStatus == (EvictionStatus{}) && s.DrainFinishTimestamp == nil &&
		s.FaultRemediated == nil && s.LastRemediationTimestamp == nil && s.Remediation == nil &&
		s.QuarantineVerdict == nil && s.Session == "" && s.Faults == nil && s.Extra == nil
}

// AppendEvent adds the event's document to b, as AppendJSON has it.
func AppendEvent(b []byte, e Event) ([]byte, error) {
	at := len(b)
	b, err := appendEvent(b, e)
	if err != nil {
		return nil, err
	}
	return e.Extra.MergeJSON(b, at)
}

// appendEvent adds what this version knows of the event.
func appendEvent(b []byte, e Event) ([]byte, error) {
	b, err := appendContent(b, e)
	if err != nil || len(e.Unread) == 0 {
		return b, err
	}
	b = append(b[:len(b)-1], `,"unread":"`...)
	return append(base64.StdEncoding.AppendEncode(b, e.Unread), `"}`...), nil
}

// appendContent adds the fields by which an event is known again, whichever version
// encodes it: a field that a later version adds is not among them.
func appendContent(b []byte, e Event) (_ []byte, err error) {
	b = strconv.AppendUint(append(b, `{"version":`...), uint64(e.Version), 10)
	b = appendText(append(b, `,"agent":`...), e.Agent)
	b = appendText(append(b, `,"componentclass":`...), e.ComponentClass)
	b = appendText(append(b, `,"checkname":`...), e.CheckName)
	b = strconv.AppendBool(append(b, `,"isfatal":`...), e.IsFatal)
	b = strconv.AppendBool(append(b, `,"ishealthy":`...), e.IsHealthy)
	b = appendText(append(b, `,"message":`...), e.Message)
	b = appendText(append(b, `,"recommendedaction":`...), string(e.RecommendedAction))
	b = appendTexts(append(b, `,"errorcode":`...), e.ErrorCode)
	b = appendEntities(append(b, `,"entitiesimpacted":`...), e.EntitiesImpacted)
	b = appendMap(append(b, `,"metadata":`...), e.Metadata)
	if b, err = appendTime(append(b, `,"generatedtimestamp":`...), &e.GeneratedTimestamp); err != nil {
		return nil, err
	}
	b = appendText(append(b, `,"nodename":`...), e.NodeName)
	b = appendOverride(append(b, `,"quarantineoverrides":`...), e.QuarantineOverrides)
	b = appendOverride(append(b, `,"drainoverrides":`...), e.DrainOverrides)
	b = appendText(append(b, `,"processingstrategy":`...), string(e.ProcessingStrategy))
	b = appendText(append(b, `,"id":`...), e.ID)
	b = appendText(append(b, `,"customrecommendedaction":`...), e.CustomRecommendedAction)
	return append(b, '}'), nil
}

func appendEntities(b []byte, list []Entity) []byte {
	if list == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, x := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(b, `{"entitytype":`...), x.EntityType)
		b = appendText(append(b, `,"entityvalue":`...), x.EntityValue)
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendOverride(b []byte, o *Override) []byte {
	if o == nil {
		return append(b, "null"...)
	}
	b = strconv.AppendBool(append(b, `{"force":`...), o.Force)
	b = strconv.AppendBool(append(b, `,"skip":`...), o.Skip)
	return append(b, '}')
}

func appendTexts(b []byte, list []string) []byte {
	if list == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, x := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, x)
	}
	return append(b, ']')
}

func appendMap(b []byte, m map[string]string) []byte {
	if m == nil {
		return append(b, "null"...)
	}
	b = append(b, '{')
	var few [8]string // room for the keys of nearly every event
	keys := few[:0]
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(append(appendText(b, k), ':'), m[k])
	}
	return append(b, '}')
}

func appendTime(b []byte, t *time.Time) ([]byte, error) {
	if t == nil {
		return append(b, "null"...), nil
	}
	b, err := t.AppendText(append(b, '"'))
	return append(b, '"'), err
}

// bare are the bytes that stand for themselves in a text.
var bare = func() (t [256]bool) {
	for c := ' '; c <= '~'; c++ {
		t[c] = !strings.ContainsRune(`"\<>&`, c)
	}
	return t
}()

// appendText leaves whatever is escaped to package json.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if !bare[s[i]] {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...) // strings always encode
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// plain is a record without its own encoding.
type plain Record

// Decode reads a record's document. What it has that this version does not know is
// the Extra of the record, of its event and of its status.
func Decode(doc []byte) (Record, error) {
	var p plain
	x, err := extra.Decode(doc, &p, func(p plain) ([]byte, error) { return appendFields(nil, Record(p)) })
	if err != nil {
		return Record{}, err //nolint:wrapcheck // the caller says what it was decoding
	}
	r := Record(p)
	r.Event.Extra, r.Status.Extra, r.Extra = x.Take(inEvent), x.Take(inStatus), x.OrNil()
	r.Status.Remediation.renameFormer()
	return r, nil
}

// UnmarshalJSON is Decode.
func (r *Record) UnmarshalJSON(doc []byte) (err error) {
	*r, err = Decode(doc)
	return err
}

// Names of the parts of a document that have an Extra of their own.
const (
	inEvent  = "healthevent"
	inStatus = "healtheventstatus"
)

// HasExtra reports whether the record has anything that this version does not know.
func (r Record) HasExtra() bool {
	return r.Extra != nil || r.Event.Extra != nil || r.Status.Extra != nil
}

// documentExtra is the Extra of the whole document; nil is nothing.
func (r Record) documentExtra() *extra.Extra {
	if !r.HasExtra() {
		return nil
	}
	out := &extra.Extra{In: map[string]*extra.Extra{inEvent: r.Event.Extra, inStatus: r.Status.Extra}}
	if r.Extra != nil {
		out.Fields = r.Extra.Fields
		maps.Copy(out.In, r.Extra.In)
	}
	return out
}
