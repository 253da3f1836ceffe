/** Milliseconds since the epoch as RFC 3339 in UTC, whole seconds: `2030-01-01T00:00:00Z`. */
export function timestamp(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`
}
