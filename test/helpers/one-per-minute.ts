/** A policy that answers by itself, once in a minute: no device is needed. */
export const ONE_PER_MINUTE = JSON.stringify({
  on_http_request: [
    {
      actions: [
        {
          type: 'rate-limit',
          config: {
            name: 'one',
            algorithm: 'sliding_window',
            capacity: 1,
            rate: '60s',
            bucket_key: ['conn.client_ip'],
          },
        },
        { type: 'custom-response' },
      ],
    },
  ],
})
