package admission

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// normaliser carries one event through the connector's cuts.
type normaliser struct {
	event record.Event
	cuts  []Cut
}

func (n *normaliser) cut(c Cut) {
	if !slices.Contains(n.cuts, c) {
		n.cuts = append(n.cuts, c)
	}
}

// clean replaces control characters in every string and cuts long texts.
func (n *normaliser) clean() {
	e := &n.event
	for _, s := range []*string{
		&e.Agent, &e.ComponentClass, &e.CheckName, &e.NodeName, &e.CustomRecommendedAction, &e.ID,
	} {
		*s = n.printable(*s)
	}
	e.Message = n.text(e.Message, MaxMessage, CutMessage)
	if len(e.Unread) > MaxUnread {
		e.Unread = nil
		n.cut(CutUnread)
	}
	for i := range e.ErrorCode {
		e.ErrorCode[i] = n.text(e.ErrorCode[i], MaxText, CutText)
	}
	for i := range e.EntitiesImpacted {
		x := &e.EntitiesImpacted[i]
		x.EntityType = n.text(x.EntityType, MaxText, CutText)
		x.EntityValue = n.text(x.EntityValue, MaxText, CutText)
	}
}

// cutMetadata cleans and bounds the metadata. The connector's notes and the keys
// that carry order and boot stay; of the others the first in key order do.
func (n *normaliser) cutMetadata(notes map[string]string) {
	given := n.event.Metadata
	if len(notes) == 0 && fits(given) {
		return
	}
	if len(given)+len(notes) == 0 {
		n.event.Metadata = nil
		return
	}
	out := maps.Clone(notes)
	for _, key := range keys(given) {
		clean := n.text(key, MaxText, CutText)
		if _, taken := out[clean]; taken || len(out) == MaxMetadata {
			n.cut(CutMetadata)
			continue
		}
		out[clean] = n.text(given[key], MaxMetadataValue, CutText)
	}
	n.event.Metadata = out
}

// fits reports whether nothing of the metadata is to be changed.
func fits(metadata map[string]string) bool {
	for k, v := range metadata {
		if !plain(k) || !plain(v) || len(k) > MaxText || len(v) > MaxMetadataValue {
			return false
		}
	}
	return len(metadata) > 0 && len(metadata) <= MaxMetadata
}

// keys lists the keys of the metadata, those that carry order and boot first, and the
// action that nobody knew.
func keys(metadata map[string]string) []string {
	ours := append(slices.Clone(record.OrderKeys), record.MetadataUnknownAction)
	out := slices.DeleteFunc(slices.Clone(ours), func(k string) bool { _, ok := metadata[k]; return !ok })
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		if !slices.Contains(ours, k) {
			out = append(out, k)
		}
	}
	return out
}

// text makes s printable and at most limit bytes long.
func (n *normaliser) text(s string, limit int, cut Cut) string {
	s = n.printable(s)
	if len(s) <= limit {
		return s
	}
	n.cut(cut)
	return strings.ToValidUTF8(s[:limit], "")
}

// printable replaces line breaks and white space other than the blank by a
// blank, and by the replacement character what else is no text of its own:
// control characters, those that turn the direction of what is shown, byte order
// marks, and bytes that are not UTF-8.
func (n *normaliser) printable(s string) string {
	if plain(s) || utf8.ValidString(s) && strings.IndexFunc(s, unfit) < 0 {
		return s
	}
	n.cut(CutControl)
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r', r == '\v', r == '\f', r == nextLine, unicode.In(r, unicode.Zl, unicode.Zp):
			return ' '
		case unfit(r):
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// nextLine ends a line for readers of YAML, as the separators of lines and
// paragraphs do.
const nextLine = '\u0085'

// unfit reports whether a text must not contain r: other programs would see another
// text, or more lines, than there are.
func unfit(r rune) bool {
	switch r {
	case '\ufeff', '\ufffe', '\uffff':
		return true
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// plain reports whether s is printable ASCII, as nearly every text is.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// cutLists bounds entities, codes, their product, and what the faults they make
// take. A fault keeps at least one of each list that it gave, so that no cut
// loses it. A recovery is refused instead: one that names less could end more faults, as
// one without sub-units ends those of the whole device.
func (n *normaliser) cutLists() *Refusal {
	before := len(n.cuts)
	n.cutEntities()
	n.cutCodes()
	n.cutFaultBytes()
	if n.event.IsHealthy && len(n.cuts) > before {
		return &Refusal{"entitiesImpacted", TooMany, "is, together with errorCode, longer than a recovery allows (" +
			string(n.cuts[before]) + "): list fewer of them, or none to recover the whole check"}
	}
	return nil
}

func (n *normaliser) cutEntities() {
	e := &n.event
	if len(e.EntitiesImpacted) > MaxEntities {
		e.EntitiesImpacted = e.EntitiesImpacted[:MaxEntities:MaxEntities]
		n.cut(CutEntities)
	}
	units := 0
	over := func(x record.Entity) bool {
		if fault.IsSubUnit(x.EntityType) {
			units++
		}
		return units > MaxSubUnits && fault.IsSubUnit(x.EntityType)
	}
	if e.EntitiesImpacted = slices.DeleteFunc(e.EntitiesImpacted, over); units > MaxSubUnits {
		n.cut(CutSubUnits)
	}
}

func (n *normaliser) cutCodes() {
	e := &n.event
	if len(e.ErrorCode) > MaxCodes {
		e.ErrorCode = e.ErrorCode[:MaxCodes:MaxCodes]
		n.cut(CutCodes)
	}
	if len(e.ErrorCode) > 0 && len(e.EntitiesImpacted)*len(e.ErrorCode) > MaxPairs {
		fit := MaxPairs / len(e.ErrorCode)
		e.EntitiesImpacted = e.EntitiesImpacted[:fit:fit]
		n.cut(CutPairs)
	}
}

// cutFaultBytes shortens the longer of the two lists until the rest fits. One
// entity with one code always does.
func (n *normaliser) cutFaultBytes() {
	e := &n.event
	for size := fault.Size(*e); size > MaxFaultBytes; size = fault.Size(*e) {
		n.cut(CutFaultBytes)
		fit := func(length int) int { return max(1, int(int64(length)*MaxFaultBytes/size)) }
		switch entities, codes := len(e.EntitiesImpacted), len(e.ErrorCode); {
		case entities >= codes && entities > 1:
			e.EntitiesImpacted = slices.Clip(e.EntitiesImpacted[:fit(entities)])
		case codes > 1:
			e.ErrorCode = slices.Clip(e.ErrorCode[:fit(codes)])
		default:
			return
		}
	}
}
