package pause

// FormerName and FormerKey are the former names of the ConfigMap and of its key, read until
// v1.0 where there is no ConfigMap, or no key, of the present name: an upgrade ends no pause.
const (
	FormerName = "nvsentinel-brake"
	FormerKey  = "brake"
)
