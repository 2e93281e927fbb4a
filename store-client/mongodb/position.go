package mongodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/nvidia/nvsentinel/store-client/internal/provider"
)

// kind is which events a feed follows.
type kind string

const (
	byInsert kind = "inserts"
	byChange kind = "changes"
)

// positionVersion is the format; positions of another format count as lost.
const positionVersion = 1

// rescanMargin is how far before the low-water mark a rescan begins: clocks of
// two servers differ, and a transaction takes time.
const rescanMargin = 10 * time.Minute

// position is how far a consumer has come: it has everything before the change
// stream's token, except what a scan still has to read.
type position struct {
	Version int    `json:"v"`
	Home    string `json:"s"`
	Kind    kind   `json:"k"`
	// Scan counts the scans of this consumer, and Count what was delivered
	// since the last one began: together they order positions, because nobody
	// can compare tokens.
	Scan  int64 `json:"c"`
	Count int64 `json:"n"`
	// Token is the change stream's, in hexadecimal.
	Token string `json:"t"`
	// Head is the highest number of the append order that was seen.
	Head int64 `json:"h"`
	// Mark is when the record at this position was stored or changed, in
	// microseconds by the server's clock.
	Mark int64 `json:"m,omitempty"`
	// Reading is what a scan still has to read; nil when it has ended.
	Reading *reading `json:"r,omitempty"`
}

// reading is a scan by append order: what was stored before the change stream
// was opened.
type reading struct {
	After int64 `json:"a"`
	Until int64 `json:"u"`
	// Again says that a position was lost; then only records stored or changed
	// since Since (in microseconds; nil when the mark was lost too) and
	// unfinished ones are read.
	Again bool   `json:"g,omitempty"`
	Since *int64 `json:"f,omitempty"`
}

var errPosition = errors.New("not a position of this feed")

func parsePosition(s string) (position, error) {
	var p position
	if err := json.Unmarshal([]byte(s), &p); err != nil {
		return p, fmt.Errorf("%w: %w", errPosition, err)
	}
	if p.Version != positionVersion || p.Home == "" || p.Token == "" {
		return p, fmt.Errorf("%w: version %d", errPosition, p.Version)
	}
	return p, nil
}

// readable is a stored position, if it is one.
func readable(text string) (position, bool) {
	p, err := parsePosition(text)
	return p, err == nil
}

func (p position) String() string {
	b, _ := json.Marshal(p) // numbers and strings always encode
	return string(b)
}

// token is the resume token as the server gave it.
func (p position) token() bson.D { return bson.D{{Key: "_data", Value: p.Token}} }

// tokenOf reads a server's token.
func tokenOf(raw bson.Raw) (string, error) {
	data, ok := raw.Lookup("_data").StringValueOK()
	if !ok || data == "" {
		return "", fmt.Errorf("the server gave no resume token: %s", raw)
	}
	return data, nil
}

// loss is why a stored position cannot be resumed, the label of the metric.
type loss string

const (
	notLost    loss = ""
	unreadable loss = "unreadable"
	// otherServer: the database is another one.
	otherServer loss = "other-server"
	// otherKind: the consumer's selector followed other events before.
	otherKind loss = "other-kind"
	// beyondEnd: the store is older than the position.
	beyondEnd loss = "beyond-end"
	// tokenLost: the server refuses the token: its history is gone.
	tokenLost loss = "token-lost"
	// streamEnded: the collection or the database was dropped, renamed or
	// restored; what is there now may have come without a change to tell of it.
	streamEnded loss = "stream-ended"
)

// line is a consumer's stored position. Scan and Count are repeated outside
// the text, so that a commit can compare in one command.
type line struct {
	Consumer string     `json:"_id"`
	Position string     `json:"position"`
	Scan     int64      `json:"scan"`
	Count    int64      `json:"count"`
	Mark     *time.Time `json:"mark"`
	At       time.Time  `json:"updatedat"`
}

func (s *Store) lines() *mongo.Collection { return s.db.Collection(Positions) }

// lineOf reads the line of a consumer; found is false without one.
func (s *Store) lineOf(ctx context.Context, consumer string) (l line, found bool, err error) {
	err = s.lines().FindOne(ctx, byID(consumer)).Decode(&l)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return line{}, false, nil
	}
	if err != nil {
		return line{}, false, fmt.Errorf("reading the position: %w", err)
	}
	return l, true, nil
}

// standing is the stored position, or why it cannot be resumed.
func (s *Store) standing(ctx context.Context, l line, k kind) (position, loss, error) {
	p, ok := readable(l.Position)
	if !ok {
		return p, unreadable, nil
	}
	head, err := s.head(ctx)
	if err != nil {
		return p, notLost, err
	}
	switch {
	case p.Home != *s.home.Load():
		return p, otherServer, nil
	case p.Kind != k:
		return p, otherKind, nil
	case p.Head > head:
		return p, beyondEnd, nil
	}
	return p, notLost, nil
}

// head is the last number of the append order that was reserved.
func (s *Store) head(ctx context.Context) (int64, error) {
	var counter struct{ N int64 }
	err := s.db.Collection(state).FindOne(ctx, byID("append")).Decode(&counter)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return 0, fmt.Errorf("reading the head: %w", err)
	}
	return counter.N, nil
}

// store writes a position unless the stored one is further.
func (f *feed) store(ctx context.Context, p position) error {
	ctx, cancel := context.WithTimeout(ctx, provider.OperationTimeout)
	defer cancel()
	set := bson.D{
		{Key: "position", Value: p.String()}, {Key: "scan", Value: p.Scan}, {Key: "count", Value: p.Count},
		{Key: "updatedat", Value: f.s.Clock.Now()},
	}
	if p.Mark > 0 && (p.Reading == nil || !p.Reading.Again) {
		set = append(set, bson.E{Key: "mark", Value: time.UnixMicro(p.Mark)})
	}
	behind := append(byID(f.consumer), bson.E{Key: "$or", Value: bson.A{
		bson.D{{Key: "scan", Value: bson.D{{Key: "$lt", Value: p.Scan}}}},
		bson.D{{Key: "scan", Value: p.Scan}, {Key: "count", Value: bson.D{{Key: "$lte", Value: p.Count}}}},
	}})
	_, err := f.s.lines().UpdateOne(ctx, behind, bson.D{{Key: "$set", Value: set}}, options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) {
		return nil // the stored position is further
	}
	return err
}

// replace writes the first position of a scan, if the stored one is still the
// lost one.
func (f *feed) replace(ctx context.Context, lost line, p position) error {
	res, err := f.s.lines().UpdateOne(ctx, append(byID(f.consumer), bson.E{Key: "position", Value: lost.Position}),
		bson.D{{Key: "$set", Value: bson.D{
			{Key: "position", Value: p.String()}, {Key: "scan", Value: p.Scan}, {Key: "count", Value: p.Count},
			{Key: "updatedat", Value: f.s.Clock.Now()},
		}}})
	if err != nil {
		return fmt.Errorf("beginning a rescan: %w", err)
	}
	if res.MatchedCount != 1 {
		return fmt.Errorf("beginning a rescan: the position of %s was changed by another process", f.consumer)
	}
	return nil
}
