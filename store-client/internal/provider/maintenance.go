package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/nvidia/nvsentinel/data-models/extra"
	"github.com/nvidia/nvsentinel/data-models/maintenance"
	"github.com/nvidia/nvsentinel/store-client/store"
)

// maxCSP bounds the name of a provider in bytes.
const maxCSP = 64

// PreparedMaintenances is an update as it is stored: every document at its next
// revision, in one order everywhere, so that updates that cross meet at their first
// common document.
type PreparedMaintenances struct {
	Events   []PreparedEvent
	Provider *maintenance.Provider
	// ProviderDoc is Provider as JSON.
	ProviderDoc []byte
}

// PreparedEvent is a maintenance with its document as JSON.
type PreparedEvent struct {
	maintenance.Event
	Doc []byte
}

// PrepareMaintenances prepares an update, or returns an error that names what cannot be stored.
func PrepareMaintenances(u store.MaintenanceUpdate) (PreparedMaintenances, error) {
	out := PreparedMaintenances{}
	if u.CSP == "" || len(u.CSP) > maxCSP {
		return out, fmt.Errorf("%w: the provider name has %d bytes", ErrUnstorable, len(u.CSP))
	}
	if len(u.Events) > store.MaxMaintenances {
		return out, fmt.Errorf("%w: %d documents in one update, the limit is %d", ErrUnstorable, len(u.Events), store.MaxMaintenances)
	}
	for _, e := range u.Events {
		if e.CSP != u.CSP || e.EventID == "" || len(e.EventID) > maxID {
			return out, fmt.Errorf("%w: maintenance %.64q of %q, in an update of %q", ErrUnstorable, e.EventID, e.CSP, u.CSP)
		}
		e.Revision++
		doc, err := encoded(e, e.Extra)
		if err != nil {
			return out, fmt.Errorf("maintenance %q: %w", e.EventID, err)
		}
		out.Events = append(out.Events, PreparedEvent{e, doc})
	}
	slices.SortFunc(out.Events, func(x, y PreparedEvent) int { return cmp.Compare(x.EventID, y.EventID) })
	for i := range out.Events[min(1, len(out.Events)):] {
		if out.Events[i].EventID == out.Events[i+1].EventID {
			return out, fmt.Errorf("%w: maintenance %q twice in one update", ErrUnstorable, out.Events[i].EventID)
		}
	}
	if u.Provider == nil {
		return out, nil
	}
	p := *u.Provider
	p.Revision++
	if p.CSP != u.CSP {
		return out, fmt.Errorf("%w: the document of provider %q in an update of %q", ErrUnstorable, p.CSP, u.CSP)
	}
	doc, err := encoded(p, p.Extra)
	if err != nil {
		return out, fmt.Errorf("provider %q: %w", p.CSP, err)
	}
	out.Provider, out.ProviderDoc = &p, doc
	return out, nil
}

// encoded is a document with what this version does not know of it.
func encoded(v any, x *extra.Extra) ([]byte, error) {
	doc, err := json.Marshal(v)
	if err == nil {
		doc, err = x.MergeJSON(doc, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnstorable, err)
	}
	return doc, storableJSON(doc)
}

// withoutUnknown is a document without what this version does not know.
func withoutUnknown[T any](v T) ([]byte, error) { return json.Marshal(v) }

// Announced decodes documents of maintenances; those that cannot be decoded, or that
// are not about what they are stored as, are named in the error.
type Announced struct {
	Events []maintenance.Event
	ids    []string
}

// Add decodes one document that is stored under an id and a revision.
func (a *Announced) Add(csp, id string, revision int64, doc []byte) {
	var e maintenance.Event
	x, err := extra.Decode(doc, &e, withoutUnknown)
	e.Extra = x
	if err != nil || e.CSP != csp || e.EventID != id || e.Revision != revision {
		a.ids = append(a.ids, id)
		return
	}
	a.Events = append(a.Events, e)
}

// Sorted gives the events by id.
func (a *Announced) Sorted() ([]maintenance.Event, error) {
	slices.SortFunc(a.Events, func(x, y maintenance.Event) int { return cmp.Compare(x.EventID, y.EventID) })
	if len(a.ids) > 0 {
		slices.Sort(a.ids)
		return a.Events, &store.UndecodableError{IDs: a.ids}
	}
	return a.Events, nil
}

// DecodeProvider decodes a provider's document that is stored at a revision.
func DecodeProvider(csp string, revision int64, doc []byte) (maintenance.Provider, error) {
	var p maintenance.Provider
	x, err := extra.Decode(doc, &p, withoutUnknown)
	p.Extra = x
	if err == nil && (p.CSP != csp || p.Revision != revision) {
		err = errors.New("its name or revision differs from the enclosing document")
	}
	if err != nil {
		return p, fmt.Errorf("%w: %w", store.ErrUndecodable, err)
	}
	return p, nil
}
