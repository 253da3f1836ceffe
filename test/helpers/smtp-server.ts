import { createServer, type Socket } from 'node:net'
import { createSecureContext, TLSSocket } from 'node:tls'
import { onTestFinished } from 'vitest'
import { eventually } from './eventually.ts'

/** A mail as it came. */
export interface ReceivedMail {
  readonly from: string
  readonly to: readonly string[]
  readonly isEncrypted: boolean
  readonly user: string | undefined
  /** Header fields in lower case, unfolded; each line of the header. */
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly header: (name: string) => string | undefined
  /** Body, decoded. */
  readonly text: string
  readonly raw: string
}

interface SmtpServerOptions {
  /** For TLS: `implicit`, or by STARTTLS. */
  readonly tls?: 'implicit' | 'starttls'
  readonly certificate?: { readonly certPem: string; readonly keyPem: string }
  readonly password?: string
  /** Answer to the n-th mail; `never`: none; `cut`: the connection ends instead. */
  readonly answer?: (count: number) => string | 'never' | 'cut'
  readonly refusedRecipients?: readonly string[]
}

const TAKEN = '250 2.0.0 queued'

/** A mail server on a port of its own, as RFC 5321 has it, with STARTTLS and AUTH PLAIN. */
export async function startSmtpServer({
  tls,
  certificate,
  password,
  answer = () => TAKEN,
  refusedRecipients = [],
}: SmtpServerOptions = {}) {
  const mails: ReceivedMail[] = []
  const lines: string[] = []
  const contents: string[] = []
  const sockets = new Set<Socket>()
  let count = 0

  function converse(socket: Socket, isEncrypted: boolean, isNew = true): void {
    let waiting = ''
    let user: string | undefined
    let from = ''
    let to: string[] = []
    let body: string | undefined
    const say = (line: string) => socket.write(`${line}\r\n`)
    const steps: Record<string, (rest: string) => unknown> = {
      EHLO: () => {
        const offers = ['test.example', '8BITMIME', 'AUTH PLAIN LOGIN']
        if (tls === 'starttls' && !isEncrypted) offers.push('STARTTLS')
        const last = offers.pop()
        for (const offer of offers) say(`250-${offer}`)
        return say(`250 ${last}`)
      },
      STARTTLS: () => {
        if (tls !== 'starttls') return say('502 5.5.1 not here')
        socket.removeAllListeners('data')
        return socket.write('220 2.0.0 go ahead\r\n', () => converse(secured(socket), true, false))
      },
      AUTH: (rest) => {
        const [, name, given] = Buffer.from(rest.split(' ')[1] ?? '', 'base64')
          .toString()
          .split('\0')
        user = given === password ? name : undefined
        say(user === undefined ? '535 5.7.8 authentication failed' : '235 2.7.0 welcome')
      },
      MAIL: (rest) => {
        if (password !== undefined && user === undefined) return say('530 5.7.0 sign in first')
        from = /<(.*?)>/.exec(rest)?.[1] ?? ''
        to = []
        return say('250 2.1.0 ok')
      },
      RCPT: (rest) => {
        const address = /<(.*?)>/.exec(rest)?.[1] ?? ''
        if (refusedRecipients.includes(address)) return say('550 5.1.1 no such mailbox')
        to.push(address)
        return say('250 2.1.5 ok')
      },
      DATA: () => {
        body = ''
        say('354 go on')
      },
      RSET: () => say('250 2.0.0 ok'),
      QUIT: () => socket.end('221 2.0.0 bye\r\n'),
    }
    const take = () => {
      const said = answer(count)
      count += 1
      const raw = (body ?? '').replace(/^\.\./gm, '.')
      contents.push(raw)
      if (said === 'never') return
      if (said === 'cut') {
        socket.destroy()
        return
      }
      body = undefined
      if (said.startsWith('2')) mails.push({ ...parsed(raw), from, to, isEncrypted, user, raw })
      say(said)
    }
    socket.on('data', (chunk) => {
      waiting += chunk.toString('latin1')
      for (let end = waiting.indexOf('\r\n'); end >= 0; end = waiting.indexOf('\r\n')) {
        const line = waiting.slice(0, end)
        waiting = waiting.slice(end + 2)
        if (body !== undefined) {
          if (line === '.') take()
          else body += `${line}\r\n`
          continue
        }
        lines.push(line)
        const [verb = ''] = line.split(' ')
        const step = steps[verb.toUpperCase()]
        if (step) step(line.slice(verb.length + 1))
        else say('500 5.5.2 unknown')
      }
    })
    socket.on('error', () => {})
    if (isNew) say('220 test.example ESMTP')
  }

  const secured = (socket: Socket) => {
    const context = createSecureContext({ cert: certificate?.certPem, key: certificate?.keyPem })
    const encrypted = new TLSSocket(socket, { isServer: true, secureContext: context })
    encrypted.on('error', () => {})
    return encrypted
  }

  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    if (tls === 'implicit') converse(secured(socket), true)
    else converse(socket, false)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  const stop = () => {
    for (const socket of sockets) socket.destroy()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  }
  onTestFinished(stop)
  return {
    port,
    mails,
    /** Commands of all connections. */
    lines,
    /** Mails with header, accepted or not. */
    contents,
    attempts: () => count,
    stop,
    /** Resolves when so many mails were taken. */
    took: (number: number) =>
      eventually(() => {
        if (mails.length < number) throw new Error(`${mails.length} of ${number} mails came`)
        return mails
      }),
  }
}

function parsed(raw: string): Pick<ReceivedMail, 'headers' | 'header' | 'text'> {
  const end = raw.indexOf('\r\n\r\n')
  const unfolded = raw.slice(0, end).replace(/\r\n[ \t]+/g, ' ')
  const headers = unfolded.split('\r\n').map((line) => {
    const colon = line.indexOf(':')
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()] as const
  })
  const header = (name: string) => headers.find(([it]) => it === name)?.[1]
  const body = raw.slice(end + 4)
  return { headers, header, text: decodedBody(body, header('content-transfer-encoding')) }
}

function decodedBody(body: string, encoding: string | undefined): string {
  if (encoding === 'base64') return Buffer.from(body, 'base64').toString()
  if (encoding !== 'quoted-printable') return body.replaceAll('\r\n', '\n')
  const bytes = body
    .replace(/=\r\n/g, '')
    .replace(/=([\dA-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
  return Buffer.from(bytes, 'latin1').toString().replaceAll('\r\n', '\n')
}
