/** Names of fields, headers and parameters whose values are nobody's to read. */
const SECRET_NAME =
  /authori[sz]ation|cookie|token|secret|passw|passphrase|pwd|api[-_]?key|private[-_]?key|credential|signature|session|jwt|^(?:auth|key|sig)$/i

export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name)
}
