/** A machine that packages are made for. */
export interface Target {
  /** As Node and npm name it. */
  readonly arch: 'x64' | 'arm64'
  /** As Debian names it. */
  readonly debian: 'amd64' | 'arm64'
  /** Prefix of the binutils that know its programs. */
  readonly triplet: string
}

export const TARGETS: readonly Target[] = [
  { arch: 'x64', debian: 'amd64', triplet: 'x86_64-linux-gnu' },
  { arch: 'arm64', debian: 'arm64', triplet: 'aarch64-linux-gnu' },
]
