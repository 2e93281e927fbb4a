package upstream

import "context"

// OtherContent is why a store refuses a record.
const OtherContent = "its id is stored with other content, or no store can hold it"

type listenerKey struct{}

// Listen returns a context of Append under which a Place tells why it refuses a
// record, where it has more to say than OtherContent. It is told before Append
// returns, by the goroutine that called it.
func Listen(ctx context.Context, refused func(id, problem string)) context.Context {
	return context.WithValue(ctx, listenerKey{}, refused)
}

// Tell says to who listens why the record is refused.
func Tell(ctx context.Context, id, problem string) {
	if refused, ok := ctx.Value(listenerKey{}).(func(id, problem string)); ok {
		refused(id, problem)
	}
}

type droppedKey struct{}

// ListenDropped returns a context of Dead under which a Place tells how many dead letters
// of the node are gone since.
func ListenDropped(ctx context.Context, dropped func(n int)) context.Context {
	return context.WithValue(ctx, droppedKey{}, dropped)
}

// TellDropped says to who listens that dead letters are gone.
func TellDropped(ctx context.Context, n int) {
	if dropped, ok := ctx.Value(droppedKey{}).(func(n int)); ok && n > 0 {
		dropped(n)
	}
}

type anewKey struct{}

// Anew returns a context of Append that says that somebody has ended faults of the node:
// what is appended repeats nothing that was before.
func Anew(ctx context.Context) context.Context { return context.WithValue(ctx, anewKey{}, true) }

// IsAnew says whether it is one.
func IsAnew(ctx context.Context) bool {
	anew, _ := ctx.Value(anewKey{}).(bool)
	return anew
}
