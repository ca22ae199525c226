# Makes the controller's URL. Literal IPv6 addresses get brackets; the protocol may end with a colon.
case $_URL_PATH in
  *://*/*)
    _URL_PATH=${_URL_PATH#*://}
    _URL_PATH=/${_URL_PATH#*/}
    _URL_PATH=${_URL_PATH%/}
    ;;
  *) _URL_PATH='' ;;
esac
SVC_API_PROTOCOL=${SVC_API_PROTOCOL%%:*}
case $SVC_API_ADDRESS in
  \[*) _URL_HOST=$SVC_API_ADDRESS ;;
  *:*) _URL_HOST=[$SVC_API_ADDRESS] ;;
  *) _URL_HOST=$SVC_API_ADDRESS ;;
esac
SVC_URL=$SVC_API_PROTOCOL://$_URL_HOST:$SVC_API_PORT$_URL_PATH
# All controllers, separated by blanks. $SVC_URL is the current one, at first the first.
_URLS="$SVC_URL${_URLS:+ $_URLS}"
