package consumer

import "sync"

// OwnWrites remembers the last own write of each thing until it is heard of. The
// zero Filter is empty; it is safe for concurrent use.
type OwnWrites struct {
	mu sync.Mutex
	// wrote is the version that the last own write of a thing made.
	wrote map[string]string
	// writing are the versions heard of while a write is under way.
	writing map[string][]string
}

// Begin says that a thing is about to be written: news of it is kept back
// until End. There is one writer of a thing at a time.
func (f *OwnWrites) Begin(thing string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.writing == nil {
		f.wrote, f.writing = map[string]string{}, map[string][]string{}
	}
	delete(f.wrote, thing)
	f.writing[thing] = nil
}

// End says which version the write made; empty if it failed or nobody knows.
// With news it says that other versions were heard of meanwhile: the caller
// has to look at the thing again.
func (f *OwnWrites) End(thing, version string) (news bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	came := false
	for _, heard := range f.writing[thing] {
		came = came || heard == version
		news = news || heard != version
	}
	delete(f.writing, thing)
	if version != "" && !came {
		f.wrote[thing] = version
	}
	return news
}

// Ignores says whether a version of a thing is nothing to act upon now: it is
// what was written last, or End will tell of it. An own write is ignored once, and
// not any more after other news of the thing.
func (f *OwnWrites) Ignores(thing, version string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, busy := f.writing[thing]; busy {
		f.writing[thing] = append(f.writing[thing], version)
		return true
	}
	own := version != "" && f.wrote[thing] == version
	delete(f.wrote, thing)
	return own
}
