package destination

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
