package config

// SetOwnToken has another file stand for the pod's own token.
func SetOwnToken(path string) (undo func()) {
	before := ownToken
	ownToken = path
	return func() { ownToken = before }
}

// MaxSecret bounds a file with a secret.
const MaxSecret = maxSecret
