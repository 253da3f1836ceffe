import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { createInterface } from 'node:readline'
import { Secret } from '../../src/base/secret.ts'
import { PostgresSession } from '../../src/gateway/cluster/postgres/postgres-session.ts'
import type { DatabaseAddress } from '../../src/settings/database-url.ts'
import { lastingAddress, portOfProcess } from './some-ports.ts'
import type { TlsFixture } from './tls-fixture.ts'

/** Debian has its programs there, one folder for each version. */
const VERSIONS = '/usr/lib/postgresql'
const BIN = newestBin()
const START_MS = 60_000
const PASSWORD = 'correct horse battery staple'

/** Where it is missing, tests that need it are left out; `.ci/run` installs it. */
export const hasPostgres = BIN !== undefined

/** Ends a server and deletes its folder as soon as its input ends: also when this process is killed. */
const CLEANER = `cat
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid"
tries=0
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && [ $tries -lt 100 ]; do sleep 0.05; tries=$((tries + 1)); done
rm -rf "$1"`

function newestBin(): string | undefined {
  if (!existsSync(VERSIONS)) return undefined
  return readdirSync(VERSIONS)
    .sort((a, b) => Number(b) - Number(a))
    .map((version) => join(VERSIONS, version, 'bin'))
    .find((bin) => existsSync(join(bin, 'initdb')) && existsSync(join(bin, 'postgres')))
}

/** PostgreSQL refuses to run as root. */
function owner(): { uid?: number; gid?: number } {
  if (process.getuid?.() !== 0) return {}
  const id = (flag: string) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }))
  return { uid: id('-u'), gid: id('-g') }
}

export interface PostgresOptions {
  readonly tls?: TlsFixture
  /** Waits for the disk, as in earnest; without it only a crash of the machine would lose anything. */
  readonly syncs?: boolean
}

/** The server that the test files of this worker share. */
let shared: Promise<TestPostgres> | undefined

/**
 * A PostgreSQL of its own in a folder of its own, on a loopback port and on a Unix socket. By TCP it
 * wants a password. What it acknowledges survives its crash; only with `syncs` that of the machine.
 */
export class TestPostgres {
  readonly password = new Secret(PASSWORD)
  readonly #folder: string
  readonly #port: number
  readonly #isShared: boolean
  readonly #owner = owner()
  /** What `database()` created and `remove()` did not drop yet. */
  readonly #databases = new Set<string>()
  readonly #cleaner: ChildProcess
  #process: ChildProcess | undefined

  private constructor(folder: string, port: number, isShared: boolean) {
    this.#folder = folder
    this.#port = port
    this.#isShared = isShared
    this.#cleaner = spawn('sh', ['-c', CLEANER, 'sh', folder], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
    this.#cleaner.unref()
  }

  /**
   * One server for all test files of a worker: a start takes seconds. It does not wait for the disk. A test
   * that stops, crashes or configures its server, or needs roles of its own, takes `start()`.
   */
  static shared(): Promise<TestPostgres> {
    shared ??= TestPostgres.#open({}, true)
    return shared
  }

  /** Has to be stopped with `remove()`. */
  static start(options: PostgresOptions = {}): Promise<TestPostgres> {
    return TestPostgres.#open(options, false)
  }

  static async #open(options: PostgresOptions, isShared: boolean): Promise<TestPostgres> {
    const folder = mkdtempSync(join(tmpdir(), 'device-agent-postgres-'))
    const postgres = new TestPostgres(
      folder,
      isShared ? portOfProcess() : lastingAddress().port,
      isShared,
    )
    try {
      postgres.#initialize(options)
      await postgres.start()
      return postgres
    } catch (error) {
      await postgres.#delete()
      throw error
    }
  }

  /** By TCP, with the password. */
  get address(): DatabaseAddress {
    return {
      ...{ host: '127.0.0.1', port: this.#port, database: 'postgres', user: 'gateway' },
      ...{ password: this.password, tls: 'off', caPath: undefined },
    }
  }

  /** By the Unix socket, where nobody asks for a password. */
  get socketAddress(): DatabaseAddress {
    return { ...this.address, host: this.#folder, password: undefined }
  }

  /** A fresh, empty database, by TCP. */
  async database(): Promise<DatabaseAddress> {
    const database = `test_${randomUUID().replaceAll('-', '')}`
    await this.query(`CREATE DATABASE ${database}`)
    this.#databases.add(database)
    return { ...this.address, database }
  }

  /** A statement of its administrator. */
  async query(sql: string, database = 'postgres'): Promise<readonly Record<string, unknown>[]> {
    const address = { ...this.socketAddress, database }
    const server = { address, password: undefined, passwordPath: undefined }
    // A new database is many files, which a busy machine takes its time for.
    const limits = { statementMs: START_MS, lockMs: START_MS, answerMs: START_MS }
    const session = await PostgresSession.open({ server, name: 'test', limits })
    try {
      return await session.query(sql)
    } finally {
      session.close()
    }
  }

  /** Adds lines to its settings; they hold from the next start on. */
  configure(lines: string): void {
    appendFileSync(join(this.#data, 'postgresql.conf'), `${lines}\n`)
  }

  /** Starts it (again), and waits until it takes connections. */
  async start(): Promise<void> {
    const args = ['-D', this.#data, '-p', `${this.#port}`, '-k', this.#folder]
    const started = spawn(join(BIN ?? '', 'postgres'), args, {
      ...this.#owner,
      cwd: this.#folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    this.#process = started
    const log: string[] = []
    await new Promise<void>((resolve, reject) => {
      const fail = () => reject(new Error(`PostgreSQL did not start:\n${log.join('\n')}`))
      const timer = setTimeout(fail, START_MS)
      started.once('error', reject)
      started.once('exit', fail)
      // It is read to the end: a full pipe would stop the server.
      createInterface({ input: started.stderr }).on('line', (line) => {
        if (log.length < 100) log.push(line)
        if (!line.includes('database system is ready to accept connections')) return
        clearTimeout(timer)
        started.off('exit', fail)
        resolve()
      })
    })
  }

  /** Ends all sessions, and writes everything to disk. */
  stop(): Promise<void> {
    return this.#end('SIGINT')
  }

  /** As after a crash: the next start recovers from the log. */
  crash(): Promise<void> {
    return this.#end('SIGQUIT')
  }

  /** Ends it and deletes its files. The shared one only drops its databases. */
  async remove(): Promise<void> {
    if (!this.#isShared) return this.#delete()
    const databases = [...this.#databases]
    this.#databases.clear()
    for (const name of databases) await this.query(`DROP DATABASE ${name} WITH (FORCE)`)
  }

  async #delete(): Promise<void> {
    // A program that waits for nothing else would end with 13 before.
    this.#cleaner.ref()
    this.#cleaner.stdin?.end()
    if (this.#cleaner.exitCode === null) await once(this.#cleaner, 'exit')
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const ending = this.#process
    this.#process = undefined
    if (!ending || ending.exitCode !== null || ending.signalCode !== null) return
    ending.kill(signal)
    await once(ending, 'exit')
  }

  get #data(): string {
    return join(this.#folder, 'data')
  }

  #initialize({ tls, syncs = false }: PostgresOptions): void {
    const passwordFile = join(this.#folder, 'password')
    this.#write(passwordFile, PASSWORD)
    const { uid = -1, gid = -1 } = this.#owner
    if (uid >= 0) chownSync(this.#folder, uid, gid)
    // The files of an empty database need not survive a power cut; what comes later does.
    const args = ['-D', this.#data, '-U', 'gateway', '--no-sync', '--no-locale', '-E', 'UTF8']
    const auth = ['--auth-local=trust', '--auth-host=scram-sha-256', `--pwfile=${passwordFile}`]
    execFileSync(join(BIN ?? '', 'initdb'), [...args, ...auth], {
      ...this.#owner,
      cwd: this.#folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    // No certificate of the tests names the second.
    this.configure("listen_addresses = '127.0.0.1,127.0.0.2'\nshared_buffers = 16MB")
    if (!syncs) this.configure('fsync = off\nfull_page_writes = off')
    if (this.#isShared) this.configure('synchronous_commit = off\nautovacuum = off')
    if (!tls) return
    this.#write(join(this.#data, 'server.crt'), tls.certPem)
    this.#write(join(this.#data, 'server.key'), tls.keyPem)
    this.configure('ssl = on')
    const rules = join(this.#data, 'pg_hba.conf')
    writeFileSync(rules, readFileSync(rules, 'utf8').replaceAll(/^host /gm, 'hostssl '))
  }

  #write(path: string, text: string): void {
    writeFileSync(path, text, { mode: 0o600 })
    chmodSync(path, 0o600)
    const { uid = -1, gid = -1 } = this.#owner
    if (uid >= 0) chownSync(path, uid, gid)
  }
}
