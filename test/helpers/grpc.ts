import {
  Client,
  credentials,
  type handleBidiStreamingCall,
  type handleClientStreamingCall,
  type handleServerStreamingCall,
  type handleUnaryCall,
  type MethodDefinition,
  Server,
  ServerCredentials,
} from '@grpc/grpc-js'

type Bytes = Buffer

/** A method whose messages are bytes. */
function method(
  name: string,
  requestStream: boolean,
  responseStream: boolean,
): MethodDefinition<Bytes, Bytes> {
  const asIs = (bytes: Bytes) => bytes
  return {
    path: `/test.Test/${name}`,
    requestStream,
    responseStream,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  }
}

/** The four kinds of calls. */
export const METHODS = {
  unary: method('Unary', false, false),
  download: method('Download', false, true),
  upload: method('Upload', true, false),
  chat: method('Chat', true, true),
}

export interface GrpcHandlers {
  readonly unary: handleUnaryCall<Bytes, Bytes>
  readonly download: handleServerStreamingCall<Bytes, Bytes>
  readonly upload: handleClientStreamingCall<Bytes, Bytes>
  readonly chat: handleBidiStreamingCall<Bytes, Bytes>
}

/** Answers with what came; a download gives as many messages as its request says. */
export const ECHO: GrpcHandlers = {
  unary: (call, done) => done(null, call.request),
  download(call) {
    const count = Number(String(call.request))
    let sent = 0
    const fill = () => {
      while (sent < count) {
        sent += 1
        if (!call.write(Buffer.from(`message ${sent}`))) {
          call.once('drain', fill)
          return
        }
      }
      call.end()
    }
    fill()
  },
  upload(call, done) {
    let count = 0
    call.on('data', () => {
      count += 1
    })
    call.on('end', () => done(null, Buffer.from(String(count))))
  },
  chat(call) {
    call.on('data', (message: Bytes) => call.write(message))
    call.on('end', () => call.end())
  },
}

/** A server without TLS on a free port, of loopback unless a host is given. */
export async function startGrpcServer(
  handlers: Partial<GrpcHandlers> = {},
  host = '127.0.0.1',
): Promise<{ readonly port: number; stop(): void }> {
  const server = new Server()
  server.addService(METHODS, { ...ECHO, ...handlers })
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync(`${host}:0`, ServerCredentials.createInsecure(), (error, bound) =>
      error ? reject(error) : resolve(bound),
    )
  })
  return { port, stop: () => server.forceShutdown() }
}

/** A client of the host behind an ingress, or without `ca` of the server itself; on loopback unless told. */
export function grpcClient({
  address = '127.0.0.1',
  port,
  host,
  ca,
}: {
  readonly address?: string
  readonly port: number
  readonly host?: string
  readonly ca?: Buffer
}): Client {
  if (!ca || host === undefined) {
    return new Client(`${address}:${port}`, credentials.createInsecure())
  }
  return new Client(`${address}:${port}`, credentials.createSsl(ca), {
    'grpc.ssl_target_name_override': host,
    'grpc.default_authority': host,
  })
}
