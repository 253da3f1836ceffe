import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '../..')

/** An older version of the program, built with the node_modules of this tree. */
export interface OldBuild {
  /** Short id of the commit. */
  readonly commit: string
  readonly version: string
  /** Path of its `main.js`. */
  readonly main: string
}

const git = (...args: string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim()

/** The newest tag of a version. Without tags: the commit that wrote the newest release into the changelog. */
export function lastRelease(): string {
  const [tag] = git('tag', '--list', 'v*', '--sort=-version:refname').split('\n')
  if (tag) return tag
  const changelog = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')
  const heading = /^## \d+\.\d+\.\d+ - .*$/m.exec(changelog)?.[0]
  if (!heading) throw new Error('CHANGELOG.md lists no release. Give a commit with --old.')
  const commit = git('log', '--format=%H', `-S${heading}`, '--', 'CHANGELOG.md').split('\n').at(-1)
  if (commit) return commit
  throw new Error(
    `No commit adds "${heading}". Fetch the whole history, or give a commit with --old.`,
  )
}

/** Throws if the commit is not in this clone. */
export function buildOld(ref: string, folder: string): OldBuild {
  const commit = git('rev-parse', '--short', '--verify', `${ref}^{commit}`)
  const tree = join(folder, commit)
  mkdirSync(tree, { recursive: true })
  const archive = execFileSync('git', ['archive', commit], { cwd: ROOT, maxBuffer: 1 << 30 })
  execFileSync('tar', ['-x', '-C', tree], { input: archive })
  symlinkSync(join(ROOT, 'node_modules'), join(tree, 'node_modules'))
  execFileSync('npm', ['run', '--silent', 'build'], { cwd: tree, stdio: ['ignore', 2, 2] })
  const { version } = JSON.parse(readFileSync(join(tree, 'package.json'), 'utf8'))
  return { commit, version, main: join(tree, 'dist/main.js') }
}
